package cluster

// The requests that set something for the client's connection: its user, its protocol, its
// database, its name and so on. One rule holds for all: such a request is alone on its way. It is
// sent when all earlier ones are answered, to one node, and later ones wait. If the node refuses
// it, nothing has changed anywhere. If the node accepts it, so must the others: a connection to one
// that refuses is ended. A later connection begins with what was accepted.

import (
	"bytes"
	"errors"
	"maps"
	"slices"

	"lockproxy/internal/commands"
	"lockproxy/internal/resp"
)

var (
	errDiffers = errors.New("it has refused what another node has accepted")
	errHalf    = errors.New("it may have done a part of what it has refused")
)

// change is a request that sets something and has no answer yet.
type change struct {
	c        *Conn
	r        *request
	raw      []byte
	effect   commands.Effect
	options  int // of HELLO: how many there are; 2 is more than one
	after    settings
	asked    *node // the first that is asked
	answered bool  // it has answered
}

// set sends a request that sets something.
func set(c *Conn, q *query) {
	ch := &change{c: c, raw: slices.Clone(q.raw), effect: q.cmd.Effect, options: options(q.args)}
	ch.after = c.settings.with(q.cmd, q.args)
	if ch.asked = c.nodes.defaultNode(); c.tx.open != nil { // it is RESET
		ch.asked = c.tx.open.node
	}
	ch.r = c.addSplit([][]byte{ch.raw}, ch.finish)
	ch.r.onAnswer = ch.onAnswer
	c.in.changing = true
	ch.asked.push(ch.r.parts[0])
}

// finish is called when all nodes have answered that are asked.
func (ch *change) finish(replies [][]byte) []byte {
	ch.c.in.changing = false
	return showHelloID(replies[0], func(id int64) int64 {
		return ch.c.cluster.numberOf(ch.c, clientRef{ch.asked.addr, id})
	})
}

func (ch *change) onAnswer(n *node, h resp.Head) {
	first, open := !ch.answered, ch.c.tx.open
	ch.answered = true
	switch {
	case !h.IsError():
		if ch.effect == commands.Reset {
			n.state, n.copies = nodeState{}, copies{}
		}
		if first {
			ch.accepted()
		}
	case !first:
		n.end(errDiffers)
	case ch.canBeHalf(h):
		n.end(errHalf)
	case open != nil:
		open.lost = true // RESET was refused, and EXEC will be
	}
}

// accepted has all other nodes do the same. The client waits only for those that it has used:
// another one can be silent. The user and the database must be certain before anything is sent, so
// the connection is made again.
func (ch *change) accepted() {
	c := ch.c
	before := c.settings
	c.settings = ch.after
	fresh := false
	switch ch.effect {
	case commands.Reset:
		c.tx.forgetWatch()
		c.tx.open = nil
		clear(c.subs.shards)
		clear(c.subs.told)
		clear(c.subs.events.wanted)
		c.subs.events.eventful = 0
		fresh = true
	case commands.Auth, commands.Hello, commands.Select:
		fresh = true
		fallthrough
	default:
		if before.equal(ch.after) {
			return
		}
	}
	for _, n := range slices.Collect(maps.Values(c.nodes.byAddr)) {
		switch {
		case n == ch.asked:
		case n.used:
			c.pushMore(ch.r, n, ch.raw)
		case fresh:
			c.nodes.reopen(n)
		default:
			r := c.ownRequest(ch.raw)
			r.onAnswer = func(n *node, h resp.Head) {
				if h.IsError() {
					n.end(errDiffers)
				}
			}
			n.push(&r.one)
		}
	}
}

// pushMore asks one more node for a request that has others.
func (c *Conn) pushMore(r *request, n *node, raw []byte) {
	p := &part{req: r, raw: raw, slot: -1}
	r.parts = append(r.parts, p)
	r.unanswered++
	c.owed(len(raw))
	n.push(p)
}

// options is how many options a HELLO has; 2 is more than one.
func options(args [][]byte) int {
	switch n := len(args); {
	case n <= 2:
		return 0
	case n == 4, n == 5 && equalFold(args[2], "auth"):
		return 1
	}
	return 2
}

// canBeHalf reports whether a HELLO that was refused can have done a part of what it says. Redis up
// to 7.0 obeys its options one by one, up to the first that it refuses, and then asks whether the
// client has logged in.
func (ch *change) canBeHalf(h resp.Head) bool {
	begins := func(text string) bool { return bytes.HasPrefix(h.Line, []byte(text)) }
	switch {
	case ch.effect != commands.Hello || begins("NOPROTO") || begins("ERR unknown"):
		return false
	case ch.options == 1:
		return begins("NOAUTH")
	}
	return ch.options > 1
}

// tracking is CLIENT TRACKING.
func tracking(c *Conn, q *query) {
	if slices.ContainsFunc(q.args, func(arg []byte) bool { return equalFold(arg, "redirect") }) {
		c.replies.answer(resp.AppendError(nil, "ERR CLIENT TRACKING with REDIRECT can't be used "+
			"on a cluster as a whole: use HELLO 3, and the messages come on this connection"))
		return
	}
	set(c, q)
}

// clientCaching is CLIENT CACHING, which is about the next request, whichever nodes that goes to.
func clientCaching(c *Conn, q *query) {
	toDefault(c, q)
	c.tx.caching = append([]byte(nil), q.raw...)
}

func equalFold(arg []byte, word string) bool { return bytes.EqualFold(arg, []byte(word)) }
