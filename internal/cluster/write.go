package cluster

import (
	"errors"
	"os"
	"strconv"

	"lockproxy/internal/loopguard"
	"lockproxy/internal/resp"
)

// maxResent is how long a request can be, in bytes, to be sent to another node if the first one
// redirects it. A longer one is streamed if its beginning tells its node; otherwise it can have
// maxJoined bytes.
const maxResent = 1 << 20

// maxUnsent is how many bytes of a streamed request wait for the node before Write waits.
const maxUnsent = 256 << 10

// limits are so wide that the nodes' own decide.
var limits = resp.Limits{Bulk: 1 << 40, Inline: 16 << 20}

// maxHeld bounds what the Conns of a Cluster hold of requests that are unfinished, being split or
// without an answer, and of replies that are joined, beyond maxResent each.
const maxHeld = 256 << 20

// argCost is what splitting a request takes for each argument, beyond its bytes, about.
const argCost = 80

// maxKeptArgs is for how many arguments memory is kept for the next request.
const maxKeptArgs = 1024

var errNoRoom = errors.New("too many clients are sending large requests that must be seen whole: " +
	"try again later")

var errTooLong = errors.New("a request that must be seen whole to be sent to the right nodes " +
	"is longer than " + strconv.Itoa(maxJoined>>20) + " MiB")

// Write sends each request in b to the nodes of its keys. b can end within a request. When Write
// returns, each node has been sent what it takes without waiting. Write waits while too much is
// unanswered.
func (c *Conn) Write(b []byte) (int, error) {
	loopguard.MayWait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.write(b); err != nil {
		return 0, err
	}
	for c.err == nil && c.full() {
		if c.writeBy.passed() {
			return 0, os.ErrDeadlineExceeded
		}
		c.room.Wait()
	}
	return len(b), nil // also if the Conn has ended since: Read says so, behind the replies
}

// TryWrite is Write that does not wait: it takes all of b, or nothing.
func (c *Conn) TryWrite(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil && c.full() {
		return 0, nil
	}
	if err := c.write(b); err != nil {
		return 0, err
	}
	return len(b), nil
}

// full reports whether nothing should be written now. mu is held.
func (c *Conn) full() bool {
	return c.unanswered > maxUnanswered || c.in.backlogged() ||
		c.unanswered > maxResent && c.cluster.held.Load() > maxHeld
}

// write sends each request in b. mu is held, but not while nodes are written to.
func (c *Conn) write(b []byte) error {
	if c.err != nil {
		return c.err
	}
	c.nodes.applyMap(c.cluster.slots.Load())
	c.in.feeding = true
	err := c.in.feed(b)
	c.in.feeding = false
	gathered := c.in.toSend
	c.in.toSend = nil // another write can come while mu is not held
	for _, n := range gathered {
		n.sendNow()
	}
	if c.in.toSend == nil {
		clear(gathered)
		c.in.toSend = gathered[:0]
	}
	if err != nil {
		c.end(err)
	}
	return err
}

// requestReader cuts what the client writes into requests, and sends them. Conn.mu is held in all
// methods.
type requestReader struct {
	c        *Conn
	framer   *resp.Framer
	query    query    // the request that is being routed
	rest     []byte   // the beginning of a request
	holds    int      // bytes of what is unfinished or being split, beyond maxResent
	reserved int64    // of Cluster.held
	keys     []int    // reused by slotOf
	held     bool     // rest begins with a request that waits until earlier ones are answered
	changing bool     // what sets something for the connection has no answer: see set.go
	closing  bool     // CloseWrite was called meanwhile
	streamTo *node    // where a request is relayed as it comes; nil if none is
	behind   outgoing // what that node is sent next
	feeding  bool     // feed is under way
	toSend   []*node  // those for which it has gathered something
}

// feed handles what the client has written.
func (in *requestReader) feed(b []byte) (err error) {
	if len(in.rest) > 0 {
		in.rest = append(in.rest, b...)
		b = in.rest
	}
	if in.held {
		return nil
	}
	for whole := true; whole && len(b) > 0 && !in.c.writeClosed; {
		var req resp.Request
		if req, whole, err = in.framer.Next(b); err != nil {
			return err
		}
		switch {
		case in.streamTo != nil:
			in.relayPiece(req.Raw, whole)
		case whole && len(req.Args) > 0:
			in.query = query{cmd: lookup(req.Args), args: req.Args, raw: req.Raw}
			if in.held = in.mustWait(in.query.cmd, len(req.Args)); !in.held {
				in.routeWithin(&in.query)
			}
		}
		if in.held {
			break
		}
		b = b[len(req.Raw):]
	}
	// The query would keep what the caller has written in memory.
	in.query = query{}
	if in.c.err != nil || in.c.writeClosed { // it holds nothing any more
		return nil
	}
	if len(b) > maxResent && in.streamTo == nil && !in.held {
		if in.held = in.changing || in.c.replies.blocked(); !in.held {
			b, err = in.stream(b)
		}
		if err != nil {
			return err
		}
	}
	if in.held {
		in.framer.Forget()
	}
	if !in.reserve(len(b) + in.framer.Held()) {
		return errNoRoom
	}
	in.rest = append(in.rest[:0], b...)
	if len(b) == 0 && cap(in.rest) > maxChunk {
		in.rest = nil
	}
	return nil
}

// drop forgets the beginning of a request, and what waits.
func (in *requestReader) drop() {
	in.rest, in.held = nil, false
	in.reserve(0)
}

// reserve accounts for size bytes of what is unfinished or being split instead of those so far. It
// fails if there is no room for more.
func (in *requestReader) reserve(size int) bool {
	before := in.holds
	in.holds = max(size-maxResent, 0)
	if in.account() {
		return true
	}
	in.holds = before
	in.account()
	return false
}

// account adds to Cluster.held what the Conn holds now, and reports whether there is room for it.
func (in *requestReader) account() bool {
	holds := int64(in.holds)
	if in.c.err == nil {
		holds += int64(max(in.c.unanswered+in.c.joined-maxResent, 0))
	}
	more := holds - in.reserved
	in.reserved = holds
	return more == 0 || in.c.cluster.held.Add(more) <= maxHeld || more < 0
}

// owed records that so many more bytes of requests, or fewer, have no answer. mu is held.
func (c *Conn) owed(more int) {
	c.unanswered += more
	c.in.account()
}

// hold records that so many more bytes of replies, or fewer, are held to be joined to that to r. It
// reports whether there is room for them. mu is held.
func (c *Conn) hold(r *request, more int) bool {
	r.heldBytes += more
	c.joined += more
	c.replies.unread += more
	return c.in.account() && r.heldBytes <= maxJoined
}

// routeWithin is route for a request that can be large: then there must be room to split it. In a
// transaction, which would go on without it, none is split.
func (in *requestReader) routeWithin(q *query) {
	if len(q.raw) <= maxResent || in.c.tx.open != nil ||
		in.reserve(len(q.raw)+argCost*len(q.args)) {
		in.route(q)
	} else {
		in.c.replies.answer(resp.AppendError(nil, "ERR "+errNoRoom.Error()))
	}
	if len(q.args) > maxKeptArgs {
		in.framer.Forget()
		in.keys = nil
	}
}

// route sends one request.
func (in *requestReader) route(q *query) {
	c := in.c
	if c.tx.open != nil {
		c.tx.open.add(q)
	} else if n := c.subs.subscribedNode(); n != nil && !whileSubscribed(q.cmd) {
		c.send(refusedBy(q, n), n)
	} else {
		q.cmd.route(c, q)
	}
}

// manySlots is the slot of keys of several.
const manySlots = -2

// slotOf is the slot of a request's keys, -1 if it has none, or manySlots. at is where the keys
// are, until the next call.
func (in *requestReader) slotOf(q *query) (slot int, at []int) {
	at = q.cmd.Keys.Positions(q.args, in.keys[:0])
	in.keys = at
	slot = -1
	for i, j := range at {
		s := Slot(q.args[j])
		if i > 0 && s != slot {
			return manySlots, at
		}
		slot = s
	}
	return slot, at
}

// headArgs is how many arguments, from the name on, are enough to route a request.
const headArgs = 4

// stream begins to stream the request at the beginning of b, if its node is known by now. It
// returns what is left of b.
func (in *requestReader) stream(b []byte) (rest []byte, err error) {
	args, argc := in.framer.Head(b, headArgs)
	if len(args) == 0 {
		return b, nil
	}
	slot, ok := lookup(args).headSlot(args, argc)
	if !ok || !in.canStream(slot) {
		if len(b) > maxJoined {
			return nil, errTooLong
		}
		return b, nil
	}
	raw := in.framer.Stream(b)
	r := newRequest(nil, slot)
	in.c.add(r)
	n := in.c.nodes.forSlot(slot)
	n.push(&r.one)
	n.out.add(raw) // behind what push sends first
	in.streamTo = n
	return b[len(raw):], nil
}

// canStream reports whether a request can go straight to the node of its slot. Otherwise it must be
// queued or refused like any other, or wait for earlier ones.
func (in *requestReader) canStream(slot int) bool {
	c := in.c
	return c.tx.open == nil && c.order.holds[slot] == nil && !c.subs.unsettled() &&
		c.subs.subscribedNode() == nil
}

// relayPiece sends the next piece of the request that is streamed, and behind the last one what has
// waited for it.
func (in *requestReader) relayPiece(raw []byte, last bool) {
	n := in.streamTo
	pieces := [][]byte{raw}
	if last {
		pieces = append(pieces, in.behind.drain()...)
		in.streamTo, in.behind = nil, outgoing{}
	}
	if n.ended {
		return
	}
	for _, b := range pieces {
		n.out.add(b)
	}
	n.wake()
}

// backlogged reports whether the node can't keep up with the request that is streamed, or too much
// is held.
func (in *requestReader) backlogged() bool {
	return in.held && len(in.rest) > maxUnsent ||
		in.streamTo != nil && !in.streamTo.ended && in.streamTo.out.unsent > maxUnsent
}
