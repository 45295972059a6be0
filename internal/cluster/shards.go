package cluster

// Sharded channels: each is at the node of its slot, and follows that.

import (
	"bytes"

	"lockproxy/internal/commands"
	"lockproxy/internal/resp"
)

// subscribeSharded is SSUBSCRIBE, and SUNSUBSCRIBE of channels.
func subscribeSharded(c *Conn, q *query) {
	slot, _ := c.in.slotOf(q)
	if slot == manySlots {
		c.replies.answer(crossSlotReply)
		return
	}
	r := newRequest(q.raw, slot)
	var n *node // of the slot
	switch {
	case slot >= 0 && q.cmd.Name == "ssubscribe":
		r.beforeSend = c.subs.expect
	case slot >= 0: // it ends what is there
		if n = c.subs.shards[string(bulk(string(q.args[1])))]; n != nil && n.ended {
			n = nil
		}
	}
	c.subs.awaits(r, q)
	c.send(r, n)
}

// unsubscribeSharded is SUNSUBSCRIBE. Without channels it is one of each.
func unsubscribeSharded(c *Conn, q *query) {
	if len(q.args) > 1 {
		subscribeSharded(c, q)
		return
	}
	if len(c.subs.shards) == 0 {
		r := newRequest(q.raw, -1)
		c.subs.awaits(r, q)
		c.send(r, c.nodes.channelNode())
	}
	for channel := range c.subs.shards {
		v, _ := resp.ParseValue([]byte(channel))
		args := [][]byte{q.args[0], v.Text}
		subscribeSharded(c, &query{q.cmd, args, resp.AppendCommand(nil, args...)})
	}
}

// shardConfirmed records what n has confirmed.
func (s *subscriptions) shardConfirmed(n *node, kind commands.Effect, reply []byte) {
	_, elems, err := resp.Elements(reply)
	if err != nil || len(elems) != 3 {
		return
	}
	if channel := string(elems[1]); kind == commands.SSubscribe {
		s.shards[channel] = n
	} else {
		delete(s.shards, channel)
	}
}

// deliver adds to the reply of r, which is about subscriptions. Requests about sharded channels
// have their turn: nodes confirm these in any order, and the number is that of the channels at all
// nodes.
func (s *subscriptions) deliver(r *request, text []byte) {
	if !r.sharded {
		s.c.replies.deliver(r, text)
		return
	}
	s.c.replies.unread += len(text)
	for r.early = append(r.early, text); len(s.confirming) > 0; s.confirming = s.confirming[1:] {
		first := s.confirming[0]
		for _, text := range first.early {
			s.c.replies.unread -= len(text)
			s.c.replies.deliver(first, s.numbered(text))
		}
		if first.early = nil; !first.done {
			break
		}
	}
}

// numbered is a reply with the number of sharded channels, if it is a confirmation.
func (s *subscriptions) numbered(reply []byte) []byte {
	aggregate, elems, err := resp.Elements(reply)
	if err != nil || len(elems) != 3 {
		return reply
	}
	name := elems[0][bytes.IndexByte(elems[0], '\n')+1:]
	switch channel := string(elems[1]); commands.Confirmation(bytes.TrimSuffix(name, crlf)) {
	case commands.SSubscribe:
		s.told[channel] = true
	case commands.SUnsubscribe:
		delete(s.told, channel)
	default:
		return reply
	}
	elems[2] = integer(int64(len(s.told)))
	return resp.AppendAggregate(nil, aggregate, elems)
}

var crlf = []byte("\r\n")

// shardMoved subscribes again to a sharded channel that a node has dropped because its slot has
// another master now. The client does not notice.
func (s *subscriptions) shardMoved(n *node, raw []byte) {
	_, elems, err := resp.Elements(raw)
	if err != nil || len(elems) != 3 {
		return
	}
	n.state.Sharded = max(0, n.state.Sharded-1)
	if channel := string(elems[1]); s.shards[channel] == n {
		s.shards[channel] = nil
		s.lost = append(s.lost, channel)
		s.c.refreshMap()
		s.c.after(firstDelay, s.restore)
	}
}

// restore subscribes again to the channels that nodes have dropped, once no request that may be
// about them is without an answer.
func (s *subscriptions) restore() {
	if s.awaited > 0 || s.c.err != nil {
		return
	}
	lost := s.lost
	s.lost = nil
	for _, channel := range lost {
		if n, wanted := s.shards[channel]; wanted && n == nil {
			s.subscribeAgain(channel)
		}
	}
}

// subscribeAgain sends SSUBSCRIBE for a channel that is in shards.
func (s *subscriptions) subscribeAgain(channel string) {
	v, _ := resp.ParseValue([]byte(channel))
	r := s.c.ownRequest(resp.AppendCommand(nil, []byte("SSUBSCRIBE"), v.Text))
	s.restoring++
	r.finish = func(replies [][]byte) []byte {
		s.restoring--
		if isError(replies[0]) {
			s.c.end(errShard)
		}
		return nil
	}
	r.intercept = nil                              // it follows redirections
	r.beforeSend = func(n *node) { n.used = true } // the client's subscription is there
	r.one.slot, r.one.confirms = Slot(v.Text), 1
	s.c.dispatch(&r.one)
}
