package cluster

import (
	"errors"
	"io"
	"syscall"

	"lockproxy/internal/commands"
	"lockproxy/internal/eventloop"
	"lockproxy/internal/loopguard"
	"lockproxy/internal/panics"
	"lockproxy/internal/resp"
)

const (
	// minRead is how much a goroutine reads at first, bytes.
	minRead = 1 << 10
	// streamFrom is how many bytes of a reply are gathered before they are delivered without the
	// rest.
	streamFrom = 64 << 10
)

// Resume reads until the connection ends or the event loop can read it again. Wait waits for it,
// unless the Conn has ended before, and so have its nodes.
func (n *node) Resume() {
	if fault := panics.In(n.Failed()); fault != nil {
		n.breakOff(fault)
	}
	if !n.begin() {
		n.Reg.Unregister()
		return
	}
	defer n.c.goroutines.Done()
	err := n.Run()
	if err == nil {
		return // it is parked, and belongs to the loop
	}
	if fault := panics.In(err); fault != nil {
		n.breakOff(fault)
	}
	if errors.Is(err, io.EOF) {
		err = errors.New("closed by the node")
	}
	n.Reg.Unregister()
	n.Close()
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	n.end(err)
}

// begin makes Wait wait. It returns false if the Conn has ended.
func (n *node) begin() bool {
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	if n.c.err != nil {
		return false
	}
	n.c.goroutines.Add(1)
	return true
}

// breakOff ends the Conn after a panic in what a node has said to it.
func (n *node) breakOff(fault *panics.Panic) {
	c := n.c
	panics.Free(&c.mu, fault)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.replies.inLoop = false
	c.end(fault)
}

// Consume relays the replies that have arrived.
func (n *node) Consume(data []byte, it *eventloop.Iteration) (err error) {
	defer panics.Contain(&err)
	notify, err := n.relayIn(data, it != nil)
	if notify != nil {
		notify(it)
	}
	return err
}

// relayIn is relay in an event loop or a goroutine. In a loop, notify is to be called if it is not
// nil.
func (n *node) relayIn(data []byte, inLoop bool) (notify func(*eventloop.Iteration), err error) {
	c, q := n.c, &n.c.replies
	c.mu.Lock()
	defer c.mu.Unlock()
	q.inLoop = inLoop
	err = n.relay(data)
	if q.due {
		notify = q.notify
	}
	q.inLoop, q.due = false, false
	n.in.full = n.full()
	return notify, err
}

// MustWait reports whether the client leaves too much unread.
func (n *node) MustWait() bool { return n.in.full }

// Wait waits while the client leaves too much unread.
func (n *node) Wait() {
	loopguard.MayWait()
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	for n.full() {
		n.c.room.Wait()
	}
	n.in.full = false
}

// hasUnread reports whether something has come that is not read yet, be it the end. c.mu is held.
func (n *node) hasUnread() bool {
	_, err := n.socket.Peek()
	return err != syscall.EAGAIN
}

// full reports whether the client leaves too much unread. c.mu is held.
func (n *node) full() bool {
	q := &n.c.replies
	full := q.unread > maxUnread && !n.ended && !q.needs(n)
	if full {
		n.c.order.sendHead()
	}
	return full
}

// relay handles bytes that were read. c.mu is held.
func (n *node) relay(data []byte) error {
	for len(data) > 0 && !n.ended {
		k, done, err := n.in.scan.Scan(data)
		if err != nil {
			return err
		}
		if !n.in.discarding {
			n.in.partial = append(n.in.partial, data[:k]...)
		}
		data = data[k:]
		switch {
		case done:
			if err := n.complete(); err != nil {
				return err
			}
		case len(n.in.partial) >= streamFrom:
			if err := n.relayPartial(); err != nil {
				return err
			}
		}
	}
	return nil
}

var (
	errNotAsked = errors.New("the node sent a reply that nobody had asked for")
	errTooLarge = errors.New("the node sent a confirmation that is too large")
)

// relayPartial delivers the beginning of a large reply, if that is certain to be the client's. An
// error that is as large is no redirection.
func (n *node) relayPartial() error {
	h, p := n.in.scan.Head(), n.awaited()
	switch {
	case n.in.push != nil:
		n.c.subs.deliver(n.in.push, n.in.partial)
		n.in.partial = nil
	case n.isUnasked(h, n.in.partial):
		n.c.subs.beginPush(n, h)
	case p == nil:
		return errNotAsked
	case p.confirms != 0:
	case p.req.finish != nil || p.req.internal:
		if !n.holds(p.req, len(n.in.partial)) {
			n.in.partial, n.in.discarding = nil, true
			n.holds(p.req, 0)
		}
	default:
		p.streamed = true
		n.c.replies.deliver(p.req, n.in.partial)
		n.in.partial = nil
	}
	if len(n.in.partial) > maxJoined {
		return errTooLarge
	}
	return nil
}

var tooLarge = resp.AppendError(nil, "ERR the replies of nodes are too large to be put together, "+
	"or those to other clients are")

// holds records that so many bytes have come of a reply to r, which is kept whole. It reports whether
// there is room for them.
func (n *node) holds(r *request, bytes int) bool {
	if r.internal {
		return bytes <= maxJoined
	}
	more := bytes - n.in.held
	n.in.held = bytes
	return n.c.hold(r, more)
}

// complete relays the end of a reply.
func (n *node) complete() error {
	h, reply := n.in.scan.Head(), n.in.partial
	n.in.partial = nil
	switch {
	case n.in.push != nil:
		n.c.subs.endPush(n, reply)
		return nil
	case n.in.notForClient:
		n.in.notForClient, n.in.discarding = false, false
		return nil
	case n.in.discarding:
		n.in.discarding = false
		reply = tooLarge
	}
	p, unsharded := n.awaited(), n.in.unsharded
	if unsharded != nil && unsharded.isConfirmed(h, reply) && !(p != nil && p.isConfirmed(h, reply)) {
		return nil // there can be one more for each of its channels
	}
	if n.isUnasked(h, reply) {
		n.c.subs.unasked(n, h, reply)
		return nil
	}
	n.in.unsharded = nil
	large := p != nil && p.confirms == 0 && p.streamed
	if unsharded != nil && h.IsError() && !large && unsharded.isMoved(reply, n.addr) {
		if p != nil && (p.slot < 0 || p.slot == unsharded.slot) {
			return errShard // it can be the answer to either
		}
		return nil
	}
	if p == nil {
		return errNotAsked
	}
	if p.confirms != 0 && p.streamed && h.IsError() {
		return errShard // nobody knows which channels were confirmed
	}
	if p.confirms != 0 && n.c.subs.confirmed(n, p, h, reply) {
		return nil
	}
	if p.req.unshards && !h.IsError() {
		kept := *p // with the channels, which it drops when it is done
		n.in.unsharded = &kept
	}
	if p.req.finish != nil && !n.holds(p.req, len(reply)) {
		reply = tooLarge
	}
	n.in.held = 0
	n.waiting.Pop()
	n.sentCount = max(n.sentCount-1, 0)
	n.c.answers.answered(n, p, h, reply)
	return nil
}

// isConfirmed reports whether p is a SUNSUBSCRIBE that a reply confirms.
func (p *part) isConfirmed(h resp.Head, reply []byte) bool {
	if !p.req.unshards || confirmationOf(h) != commands.SUnsubscribe {
		return false
	}
	v, _ := resp.ParseValue(reply)
	return len(v.Elems) == 3 && Slot(v.Elems[1].Text) == p.slot && p.names(reply)
}

// isMoved reports whether a reply of the node at addr is that p's slot has moved.
func (p *part) isMoved(reply []byte, addr string) bool {
	kind, slot, _ := parseRedirect(lineOf(reply), addr)
	return kind == moved && slot == p.slot
}
