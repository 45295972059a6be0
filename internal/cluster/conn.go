package cluster

import (
	"context"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"lockproxy/internal/resp"
)

const (
	// maxBuffered is how many bytes of replies wait for earlier ones before their nodes aren't read any more.
	maxBuffered = 1 << 20
	// maxKept is how many bytes of requests may be without an answer before Write waits.
	maxKept = 4 << 20
	// maxJoined bounds a reply of one node that is put together with others, bytes.
	maxJoined = 64 << 20
)

// Dialer opens a connection to a node, host:port, that is logged in, and then told setup, requests whose
// replies are not read by anybody else. If the node refuses a login the error has a method Refusal, with
// the reply to what the node would have been asked.
type Dialer func(ctx context.Context, addr string, setup [][]string) (net.Conn, error)

// Options says how a Conn behaves.
type Options struct {
	Dial    Dialer
	Proto   int           // the protocol that Dial's connections speak, 2 or 3
	Timeout time.Duration // of opening the connection to a further node
	// Failure makes the reply to a request that failed with the connection to a node. sent says that it may have run.
	Failure func(addr string, sent bool, err error) []byte
	// EndOnLoss ends the Conn when a request is lost with a node, instead of answering with Failure.
	EndOnLoss bool
}

// Conn is the whole cluster as one connection to one Redis. Write may be called by one goroutine at a time, and Read by another; the
// rest by any.
type Conn struct {
	cluster *Cluster
	Options
	ctx     context.Context // ends with the Conn
	cancel  context.CancelFunc
	running sync.WaitGroup // the nodes' goroutines
	framer  *resp.Framer   // of Write
	rest    []byte         // of Write; the beginning of a request
	at      []int          // of Write; for once

	mu          sync.Mutex
	readable    *sync.Cond
	room        *sync.Cond
	waiters     int                      // guarded by mu; how many wait for room
	slots       *slotMap                 // guarded by mu; nil if it isn't known
	nodes       map[string]*node         // guarded by mu; by address
	home        *node                    // guarded by mu; where requests without keys go; nil until one is needed
	head, last  *request                 // guarded by mu; the queue
	buffered    int                      // guarded by mu; bytes of replies that Read hasn't returned
	kept        int                      // guarded by mu; bytes of requests without an answer
	moving      map[int]*moving          // guarded by mu; by slot
	answering   answering                // guarded by mu; while a node's answer is looked at
	delayed     map[*time.Timer]struct{} // guarded by mu; what is done later
	streaming   *stream                  // guarded by mu; the large request that is being written
	setup       setup                    // guarded by mu; what further nodes are told
	txn         *transaction             // guarded by mu; nil outside of one
	watched     watched                  // guarded by mu
	shards      map[string]*node         // guarded by mu; where sharded channels are subscribed to, by channel, encoded
	subscriber  *node                    // guarded by mu; the last that was asked for a subscription
	channels    *node                    // guarded by mu; where its channels that aren't sharded are
	caching     []byte                   // guarded by mu; CLIENT CACHING for the next request
	newest      *request                 // guarded by mu; the one of the client's that came last
	answeredFor answeredFor              // guarded by mu; see waitAt
	err         error                    // guarded by mu; why the Conn has ended
	half        bool                     // guarded by mu; CloseWrite was called

	readUntil, writeUntil deadline // guarded by mu
}

// newConn makes a Conn without any connection.
func newConn(cl *Cluster, o Options) *Conn {
	c := &Conn{cluster: cl, Options: o, framer: resp.NewFramer(limits), nodes: map[string]*node{}, delayed: map[*time.Timer]struct{}{}}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.readable, c.room = sync.NewCond(&c.mu), sync.NewCond(&c.mu)
	c.slots = cl.slots.Load()
	c.setup.proto = o.Proto
	return c
}

// limits are so wide that the nodes' own decide.
var limits = resp.Limits{Bulk: 1 << 40, Inline: 16 << 20}

// Read returns replies, in the order of the requests, and what comes unasked between them.
func (c *Conn) Read(b []byte) (n int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		if n = c.readNow(b); n > 0 || len(b) == 0 {
			return n, nil
		}
		switch {
		case c.err != nil:
			return 0, c.err
		case c.half && (c.head == nil && len(c.nodes) == 0 || c.head != nil && c.head.void):
			return 0, io.EOF
		case c.readUntil.passed:
			return 0, os.ErrDeadlineExceeded
		}
		c.readable.Wait()
	}
}

// readNow takes what there is.
func (c *Conn) readNow(b []byte) (n int) {
	for c.head != nil {
		r := c.head
		k := r.out.take(b[n:])
		n += k
		r.began = r.began || k > 0
		if r.out.size > 0 || !r.done {
			break
		}
		c.head, r.read = r.next, true
		if c.head == nil {
			c.last = nil
		}
	}
	if n > 0 {
		c.buffered -= n
	}
	c.signalRoom()
	return n
}

// headNeeds reports whether the first in the queue waits for what n has still to send.
func (c *Conn) headNeeds(n *node) (needs bool) {
	if c.head == nil {
		return true
	}
	c.head.eachPart(func(p *part) { needs = needs || p.node == n })
	return needs
}

func (c *Conn) waitRoom() {
	c.waiters++
	c.room.Wait()
	c.waiters--
}

func (c *Conn) signalRoom() {
	if c.waiters > 0 {
		c.room.Broadcast()
	}
}

// enqueue gives a request of the client's its place. mu is held.
func (c *Conn) enqueue(r *request) {
	if c.last == nil {
		c.head = r
	} else {
		c.last.next = r
	}
	c.last = r
	c.newest, c.answeredFor = r, answeredFor{}
}

// Quiet reports whether the Conn can be used further, nothing is awaited, and nothing has come but pushes.
func (c *Conn) Quiet() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for r := c.head; r != nil; r = r.next {
		if !r.done || r.began || r.out.size == 0 || r.out.first[0] != '>' {
			return false
		}
	}
	return c.err == nil && !c.half && len(c.rest) == 0 && c.txn == nil && c.watched.part == nil
}

// give adds bytes to what the client is given for r. mu is held.
func (c *Conn) give(r *request, reply pieces) {
	r.out.append(reply)
	c.buffered += reply.size
	if r == c.head {
		c.readable.Signal()
	}
}

// local answers a request of the client's at once. mu is held.
func (c *Conn) local(text []byte) {
	r := &request{done: true}
	c.enqueue(r)
	c.give(r, pieces{first: text, size: len(text)})
}

// ownRequest is one whose reply the client doesn't see. finish is called with it; nil is for those whose reply doesn't matter.
func (c *Conn) ownRequest(raw []byte, finish func(reply []byte)) *request {
	r := newRequest(raw, -1)
	r.hidden = true
	c.kept += len(raw)
	r.finish = func(replies [][]byte) []byte {
		if finish != nil {
			finish(replies[0])
		}
		return nil
	}
	return r
}

// endLocked ends the Conn. What has been answered can still be read. mu is held.
func (c *Conn) endLocked(err error) {
	if c.err != nil {
		return
	}
	c.err = err
	c.cancel()
	for _, n := range c.nodes {
		n.end(err)
	}
	for timer := range c.delayed {
		if timer.Stop() {
			c.running.Done()
		}
	}
	c.readable.Broadcast()
	c.room.Broadcast()
}

// Close ends all connections at once, and returns when nothing of the Conn runs any more.
func (c *Conn) Close() error {
	c.mu.Lock()
	c.endLocked(net.ErrClosed)
	c.readUntil.stop()
	c.writeUntil.stop()
	c.mu.Unlock()
	c.cluster.forget(c)
	c.running.Wait()
	return nil
}

// CloseWrite tells each node that nothing more will be asked, so that it answers, gives up what blocks, and closes.
func (c *Conn) CloseWrite() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.half = true
	for _, n := range c.nodes {
		n.wake()
	}
	c.readable.Broadcast()
	return nil
}

// LocalAddr is nobody's.
func (c *Conn) LocalAddr() net.Addr { return Addr("") }

// RemoteAddr is the cluster.
func (c *Conn) RemoteAddr() net.Addr { return Addr(c.cluster.String()) }

// Addr is a cluster as a net.Addr.
type Addr string

// Network is "cluster".
func (Addr) Network() string { return "cluster" }

func (a Addr) String() string { return string(a) }
