package cluster

import (
	"context"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"lockproxy/internal/eventloop"
	"lockproxy/internal/loopguard"
	"lockproxy/internal/resp"
)

const (
	// maxUnread is how many bytes of replies wait for earlier ones before nodes are not read.
	maxUnread = 1 << 20
	// maxUnanswered is how many bytes of requests can be without an answer before Write waits.
	maxUnanswered = 4 << 20
	// maxJoined bounds the replies of nodes that are joined to one, bytes.
	maxJoined = 64 << 20
)

// Options says how a Conn behaves.
type Options struct {
	Dial    Dialer
	Setup   [][]string    // what its connections are sent first, as if the client had sent it
	Timeout time.Duration // of opening the connection to a further node
	// Early opens the connections to all masters at once, not when they are first needed.
	Early bool
	// Failure makes the reply to a request whose node can't be reached, or was lost before it
	// answered. sent says that the request may have run.
	Failure func(addr string, sent bool, err error) []byte
	// EndOnLoss ends the Conn when a request is lost with a node, instead of answering Failure.
	EndOnLoss bool
	// Loops read the nodes; nil if goroutines do.
	Loops *eventloop.Loops
}

// Conn presents the whole cluster as one connection to one Redis. One goroutine can call Write
// while another calls Read; the other methods can be called by any.
type Conn struct {
	Options
	deadlines
	lifetime
	cluster *Cluster

	// mu guards the rest.
	in         requestReader
	replies    replyQueue
	room       *sync.Cond // less is unread, unanswered or unsent
	unanswered int        // bytes of requests without an answer
	joined     int        // bytes of replies that are held to be joined
	nodes      nodeSet
	order      slotOrder
	answers    answers
	settings   settings
	tx         txState
	subs       subscriptions
}

// lifetime is what ends with a Conn.
type lifetime struct {
	mu          sync.Mutex
	ctx         context.Context
	cancel      context.CancelFunc
	goroutines  sync.WaitGroup
	err         error // guarded by mu; why it has ended
	writeClosed bool  // guarded by mu; CloseWrite or QUIT
}

// newConn makes a Conn without any connection.
func newConn(cl *Cluster, o Options) *Conn {
	c := &Conn{cluster: cl, Options: o}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.room = sync.NewCond(&c.mu)
	c.replies.readable = sync.NewCond(&c.mu)
	c.readBy.cond, c.writeBy.cond = c.replies.readable, c.room
	c.in = requestReader{c: c, framer: resp.NewFramer(limits)}
	c.nodes = nodeSet{c: c, slots: cl.slots.Load(), byAddr: map[string]*node{},
		others: map[string]map[string]bool{}, closing: closingTimeout}
	c.order = slotOrder{c: c, holds: map[int]*slotHold{}}
	c.answers, c.tx.c, c.subs.c = answers{c: c, slot: -1}, c, c
	c.subs.shards, c.subs.told = map[string]*node{}, map[string]bool{}
	c.subs.events = events{c: c, wanted: map[eventName]bool{}}
	c.settings = newSettings(o.Setup)
	return c
}

// Read returns replies in the order of the requests, and pushes between them.
func (c *Conn) Read(b []byte) (n int, err error) {
	loopguard.MayWait()
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		n, err = c.tryRead(b)
		switch {
		case err != syscall.EAGAIN || len(b) == 0:
			return n, err
		case c.readBy.passed():
			return 0, os.ErrDeadlineExceeded
		}
		c.replies.readable.Wait()
	}
}

// TryRead is Read without waiting: if there is nothing to read, the error is syscall.EAGAIN.
// Deadlines do not apply to it.
func (c *Conn) TryRead(b []byte) (n int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tryRead(b)
}

// tryRead is TryRead with mu held.
func (c *Conn) tryRead(b []byte) (n int, err error) {
	n = c.replies.read(b)
	c.room.Broadcast()
	switch {
	case n > 0:
		return n, nil
	case c.err != nil:
		return 0, c.err
	case c.writeClosed && c.replies.ended(len(c.nodes.byAddr)):
		return 0, io.EOF
	}
	return 0, syscall.EAGAIN
}

// NotifyReader sets notify, which is called whenever there is something to read: in an iteration of
// an event loop, or with nil, and then it may not use the Conn.
func (c *Conn) NotifyReader(notify func(*eventloop.Iteration)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.replies.notify = notify
	notify(nil) // there can be something already
}

// Quiet reports whether the Conn can be used further, no reply is missing, and nothing is left to
// read, but for pushes if these may be.
func (c *Conn) Quiet(pushes bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.quiet(pushes)
}

// quiet is Quiet with mu held.
func (c *Conn) quiet(pushes bool) bool {
	return c.err == nil && !c.writeClosed && len(c.in.rest) == 0 && c.replies.onlyPushes() &&
		(pushes || c.replies.head == nil) && c.tx.open == nil && c.tx.watched.part == nil
}

// Fresh reports whether the Conn is as it was when it was opened, with connections to all masters,
// and nothing has come by any since that it has not read.
func (c *Conn) Fresh() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.quiet(false) || c.answers.writesLost {
		return false
	}
	c.nodes.applyMap(c.cluster.slots.Load())
	for _, n := range c.nodes.byAddr {
		if n.in.scan.Began() || n.socket != nil && n.hasUnread() {
			return false
		}
	}
	return c.nodes.slots == nil ||
		!slices.ContainsFunc(c.nodes.slots.masters, func(addr string) bool {
			n := c.nodes.byAddr[addr]
			return n == nil || n.Conn == nil
		})
}

// KeepAlive sends a request to the nodes that could take the Conn for idle. Nobody sees the answers.
func (c *Conn) KeepAlive(raw []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil || c.writeClosed || c.tx.open != nil {
		return
	}
	for _, n := range c.nodes.byAddr {
		if n.waiting.Len() == 0 && n.state == (nodeState{}) {
			n.sendOwn(raw)
		}
	}
}

// Close ends all connections at once. It does not wait: see Wait.
func (c *Conn) Close() error {
	defer c.cluster.remove(c)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end(net.ErrClosed)
	c.readBy.stop()
	c.writeBy.stop()
	return nil
}

// Wait returns when nothing of the Conn, which has been closed, runs any more.
func (c *Conn) Wait() {
	loopguard.MayWait()
	c.goroutines.Wait()
}

// CloseWrite tells each node that no more requests come. A node then answers, gives up what blocks,
// and closes its connection.
func (c *Conn) CloseWrite() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endRequests()
	return nil
}

// LocalAddr is empty: a Conn has many connections.
func (c *Conn) LocalAddr() net.Addr { return addr("") }

// RemoteAddr names the cluster.
func (c *Conn) RemoteAddr() net.Addr { return addr(c.cluster.String()) }

type addr string

func (addr) Network() string  { return "cluster" }
func (a addr) String() string { return string(a) }

// endRequests is called when no more requests come. Requests that wait behind one that blocks are
// dropped. mu is held.
func (c *Conn) endRequests() {
	if c.in.held && !c.replies.blocked() {
		c.in.closing = true
		return
	}
	c.writeClosed = true
	c.in.drop()
	for _, n := range c.nodes.byAddr {
		if n.used {
			n.wake()
		} else {
			n.end(net.ErrClosed)
		}
	}
	c.replies.wakeReader()
}

// end ends the Conn. Replies that have come can still be read. mu is held.
func (c *Conn) end(err error) {
	if c.err != nil {
		return
	}
	c.err = err
	c.cancel()
	c.in.drop()
	for _, n := range c.nodes.byAddr {
		n.end(err)
	}
	c.replies.wakeReader()
	c.room.Broadcast()
}

// after calls do, with mu held, after delay, unless the Conn has ended by then. mu is held.
func (l *lifetime) after(delay time.Duration, do func()) {
	l.goroutines.Go(func() { // ends after delay, or with ctx; Wait waits for it
		select {
		case <-time.After(delay):
		case <-l.ctx.Done():
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.err == nil {
			do()
		}
	})
}

// send sends a request of the client's that has one part to n; nil is the node that serves its
// slot. mu is held.
func (c *Conn) send(r *request, n *node) *request {
	c.owed(len(r.one.raw))
	c.add(r)
	if n == nil {
		c.dispatch(&r.one)
	} else {
		n.push(&r.one)
	}
	return r
}

// add puts a request of the client's that is about to be sent into the replyQueue. mu is held.
func (c *Conn) add(r *request) {
	r.turn = c.order.turn()
	r.caching, c.tx.caching = c.tx.caching, nil
	c.replies.add(r)
}

// dispatch sends a part to the node that serves its slot, in order. mu is held.
func (c *Conn) dispatch(p *part) {
	switch {
	case p.slot < 0:
		c.nodes.defaultNode().push(p)
	case !c.order.held(p):
		c.nodes.forSlot(p.slot).push(p)
	}
}

// ownRequest is a request whose reply the client does not see. It follows no redirections. mu is
// held.
func (c *Conn) ownRequest(raw []byte) *request {
	r := newRequest(raw, -1)
	r.internal, r.intercept, r.turn = true, noRedirects, c.order.turn()
	c.owed(len(raw))
	return r
}

// refreshMap starts a refresh of the map, unless one is under way. The client may lack the right to
// ask, so the login that Follow asks with is used while it works. mu is held.
func (c *Conn) refreshMap() {
	if c.err != nil || !c.cluster.beginRefresh() {
		return
	}
	dial, login := c.Dial, c.settings.login()
	if own := c.cluster.own.Load(); own != nil {
		dial, login = own.dial, own.login
	}
	c.goroutines.Go(func() { // ends after askTimeout for each node, or with ctx; Wait waits for it
		c.cluster.refresh(c.ctx, dial, login, refreshGap)
	})
}
