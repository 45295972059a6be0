package cluster

import (
	"slices"
	"sync"

	"lockproxy/internal/eventloop"
)

// replyQueue is the client's requests in their order, until their replies have been read. Conn.mu
// guards it.
type replyQueue struct {
	readable   *sync.Cond
	notify     func(*eventloop.Iteration) // see NotifyReader; nil for none
	inLoop     bool                       // an event loop reads a node, and calls notify then
	due        bool                       // it has to
	head, last *request
	newest     *request // the last that the client has sent
	blocking   *request // the last that can wait for another client; nil for none
	answeredBy answerer // of newest
	unanswered int      // how many of them have no whole answer
	unread     int      // bytes of replies
}

// answerer is the node that has answered a request for a slot; its zero value is none.
type answerer struct {
	node *node
	slot int
}

// add puts a request of the client's at the end.
func (q *replyQueue) add(r *request) {
	q.insert(q.last, r)
	if !r.done {
		q.unanswered++
	}
	q.newest, q.answeredBy = r, answerer{}
}

// blocked reports whether a request without an answer can wait for another client. Nothing behind
// it is sent, so there is one at most.
func (q *replyQueue) blocked() bool { return q.blocking != nil && !q.blocking.done }

// blocks records that the newest request can wait for another client.
func (q *replyQueue) blocks() { q.blocking = q.newest }

// insert puts r behind prev; nil is in front.
func (q *replyQueue) insert(prev, r *request) {
	if prev == nil {
		r.next, q.head = q.head, r
	} else {
		r.next, prev.next = prev.next, r
	}
	if q.last == prev {
		q.last = r
	}
}

// insertPush puts a push behind r, if that is in the queue, otherwise as far in front as it can be
// between two replies.
func (q *replyQueue) insertPush(r, push *request) {
	switch {
	case r != nil && !r.removed:
	case q.head != nil && q.head.started:
		r = q.head
	default:
		r = nil
	}
	q.insert(r, push)
	q.unread += len(push.out)
	q.wakeReader()
}

// wakeReader has the client read on.
func (q *replyQueue) wakeReader() {
	q.readable.Broadcast()
	switch {
	case q.notify == nil:
	case q.inLoop:
		q.due = true
	default:
		q.notify(nil)
	}
}

// deliver adds to the reply of r. The caller leaves text to it.
func (q *replyQueue) deliver(r *request, text []byte) {
	if q.unread += len(text); len(r.out) == 0 {
		r.out = slices.Clip(text) // the memory behind text is not the request's
	} else {
		r.out = append(r.out, text...)
	}
	if r == q.head {
		q.wakeReader()
	}
}

// answer adds a request of the client's that needs no node.
func (q *replyQueue) answer(text []byte) {
	r := &request{done: true}
	q.add(r)
	q.deliver(r, text)
}

// read moves the bytes that the client can read to b, and returns their number.
func (q *replyQueue) read(b []byte) (n int) {
	for q.head != nil {
		r := q.head
		k := copy(b[n:], r.out)
		r.out = r.out[k:]
		n += k
		r.started = r.started || k > 0
		if len(r.out) > 0 || !r.done {
			break
		}
		q.head, r.removed = r.next, true
	}
	if q.head == nil {
		q.last = nil
	}
	q.unread -= n
	return n
}

// needs reports whether the client can read nothing before n has answered.
func (q *replyQueue) needs(n *node) (needs bool) {
	switch {
	case q.head == nil:
		return true
	case len(q.head.out) > 0:
		return false
	}
	q.head.eachPart(func(p *part) { needs = needs || p.node == n })
	return needs
}

// ended reports whether no reply will come any more, given the number of nodes.
func (q *replyQueue) ended(nodes int) bool {
	if q.head == nil {
		return nodes == 0
	}
	return q.head.dropped
}

// onlyPushes reports whether no request waits for its reply, and nothing but pushes is to be read.
func (q *replyQueue) onlyPushes() bool {
	for r := q.head; r != nil; r = r.next {
		if !r.done || r.started || len(r.out) == 0 || r.out[0] != '>' {
			return false
		}
	}
	return true
}
