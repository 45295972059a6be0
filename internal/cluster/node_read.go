package cluster

import (
	"errors"
	"io"
	"syscall"

	"lockproxy/internal/eventloop"
	"lockproxy/internal/loopguard"
	"lockproxy/internal/panics"
	"lockproxy/internal/resp"
)

const (
	// minRead and maxRead bound the memory that replies are read into, bytes. It grows as needed.
	minRead, maxRead = 1 << 10, 64 << 10
	// streamFrom is how many bytes of a reply are gathered before they are delivered without the
	// rest.
	streamFrom = 64 << 10
)

// Ready relays the replies that have arrived.
func (n *node) Ready(it *eventloop.Iteration, _ bool) (next eventloop.Next) {
	next = eventloop.Leave // after a panic
	defer panics.Contain(&n.in.failed)
	room := n.in.room()
	k, err := n.socket.TryRead(room)
	switch {
	case err == syscall.EAGAIN:
		return eventloop.Stay
	case err != nil:
		n.in.failed = endOf(err)
		return eventloop.Leave
	}
	n.in.filled(k)
	full, notify, err := n.relayInLoop(room[:k])
	if n.in.failed = err; notify != nil {
		notify(it)
	}
	switch {
	case n.in.failed != nil, full:
		return eventloop.Leave
	case k == len(room):
		return eventloop.Again
	}
	return eventloop.Stay
}

// hasUnread reports whether something has come that is not read yet, be it the end. c.mu is held.
func (n *node) hasUnread() bool {
	_, err := n.socket.Peek()
	return err != syscall.EAGAIN
}

// relayInLoop is relay in an event loop. full says that no more is to be read now; notify, if it is
// not nil, that there is something to read.
func (n *node) relayInLoop(data []byte) (
	full bool, notify func(*eventloop.Iteration), err error,
) {
	c, q := n.c, &n.c.replies
	c.mu.Lock()
	defer c.mu.Unlock()
	q.inLoop = true
	err = n.relay(data)
	if q.due {
		notify = q.notify
	}
	q.inLoop, q.due = false, false
	return n.full(), notify, err
}

// attend lets the event loop read, or reads itself.
func (n *node) attend() {
	if !n.reg.Park() {
		n.Resume()
	}
}

// Resume reads until the connection ends or the event loop can read it again. Wait waits for it,
// but not within Park, which calls the Conn's reader.
func (n *node) Resume() {
	if fault := panics.In(n.in.failed); fault != nil {
		n.breakOff(fault)
	}
	for n.begin() {
		ended := n.read()
		n.c.goroutines.Done()
		if ended || n.reg.Park() {
			return
		}
	}
	n.reg.Unregister()
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

// begin makes Wait wait. It returns false if the Conn has ended, and so have its nodes.
func (n *node) begin() bool {
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	if n.c.err != nil {
		return false
	}
	n.c.goroutines.Add(1)
	return true
}

// read relays replies until the connection ends. It returns false if a loop can read on.
func (n *node) read() (ended bool) {
	err := n.copyReplies()
	if err == nil {
		return false
	}
	if fault := panics.In(err); fault != nil {
		n.breakOff(fault)
	}
	n.reg.Unregister()
	n.close()
	n.c.mu.Lock()
	n.end(err)
	n.c.mu.Unlock()
	return true
}

// relayRead is relay in a goroutine. full says that no more is to be read now.
func (n *node) relayRead(data []byte) (full bool, err error) {
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	err = n.relay(data)
	return n.full(), err
}

// copyReplies returns why the connection has ended, or nil if a loop can read on.
func (n *node) copyReplies() (err error) {
	defer panics.Contain(&err)
	for n.in.failed == nil {
		n.awaitRoom()
		room := n.in.room()
		k, err := n.nc.Read(room)
		n.in.filled(k)
		full, failed := n.relayRead(room[:k])
		switch {
		case failed != nil:
			return failed
		case err != nil:
			return endOf(err)
		case n.reg != nil && k < len(room) && !full:
			return nil
		}
	}
	return n.in.failed
}

// endOf is why a connection has ended, given the error of a read.
func endOf(err error) error {
	if errors.Is(err, io.EOF) {
		return errors.New("closed by the node")
	}
	return err
}

// room is where to read to.
func (in *incoming) room() []byte {
	if in.buf == nil {
		in.buf = make([]byte, minRead)
	}
	return in.buf[in.used:]
}

// filled records how much was read to room.
func (in *incoming) filled(k int) {
	full := in.used+k == len(in.buf)
	in.used += k
	if size := len(in.buf); size-in.used < size/4 {
		if full && size < maxRead {
			size *= 2
		}
		in.buf, in.used = make([]byte, size), 0
	}
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

// awaitRoom waits while the client leaves too much unread.
func (n *node) awaitRoom() {
	loopguard.MayWait()
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	for n.full() {
		n.c.room.Wait()
	}
}

// relay handles bytes that were read. c.mu is held.
func (n *node) relay(data []byte) error {
	for len(data) > 0 && !n.ended {
		k, done, err := n.in.scan.Scan(data)
		if err != nil {
			return err
		}
		if !n.in.discarding {
			n.in.partial.add(data[:k])
		}
		data = data[k:]
		switch {
		case done:
			if err := n.complete(); err != nil {
				return err
			}
		case n.in.partial.size >= streamFrom:
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
		n.in.partial = pieces{}
	case n.isUnasked(h, n.in.partial):
		n.c.subs.beginPush(n, h)
	case p == nil:
		return errNotAsked
	case p.confirms != 0:
	case p.req.finish != nil || p.req.internal:
		if n.in.partial.size > maxJoined {
			n.in.partial, n.in.discarding = pieces{}, true
		}
	default:
		p.streamed = true
		n.c.replies.deliver(p.req, n.in.partial)
		n.in.partial = pieces{}
	}
	if n.in.partial.size > maxJoined {
		return errTooLarge
	}
	return nil
}

var tooLarge = resp.AppendError(nil,
	"ERR the reply of a node is too large to be put together with those of others")

// complete relays the end of a reply.
func (n *node) complete() error {
	h, reply := n.in.scan.Head(), n.in.partial
	n.in.partial = pieces{}
	switch {
	case n.in.push != nil:
		n.c.subs.endPush(n, reply)
		return nil
	case n.in.notForClient:
		n.in.notForClient, n.in.discarding = false, false
		return nil
	case n.in.discarding:
		n.in.discarding = false
		reply.add(tooLarge)
	}
	if n.isUnasked(h, reply) {
		n.c.subs.unasked(n, h, reply)
		return nil
	}
	p, unsharded := n.awaited(), n.in.unsharded
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
	if p.confirms != 0 && n.c.subs.confirmed(n, p, h, &reply) {
		return nil
	}
	if p.req.unshards && !h.IsError() {
		n.in.unsharded = p
	}
	n.waiting.Pop()
	n.sentCount = max(n.sentCount-1, 0)
	n.c.answers.answered(n, p, h, reply)
	return nil
}

// isMoved reports whether a reply of the node at addr is that p's slot has moved.
func (p *part) isMoved(reply pieces, addr string) bool {
	kind, slot, _ := parseRedirect(lineOf(reply.bytes()), addr)
	return kind == moved && slot == p.slot
}
