package cluster

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"

	"lockproxy/internal/commands"
	"lockproxy/internal/resp"
)

const (
	// minRead and maxRead bound the memory that a node's replies are read into, bytes. It grows with what comes.
	minRead, maxRead = 4 << 10, 64 << 10
	// minChunk and maxChunk bound the memory that requests are gathered in, likewise.
	minChunk, maxChunk = 1 << 10, 64 << 10
	// maxUnsent is how many bytes of a streamed request wait for the node before more are taken.
	maxUnsent = 256 << 10
	// passFrom is how much of a reply is gathered before it is given on unfinished, bytes.
	passFrom = 64 << 10
)

// node is a Conn's connection to one node. It opens by itself, in the background. All its fields are guarded by Conn.mu, but for what the
// comments say.
type node struct {
	c    *Conn
	addr string
	nc   net.Conn // nil until it is open

	full   [][]byte // chunks to be sent
	tail   []byte   // the last chunk, which is still being filled
	sent   int      // bytes of tail that have been sent
	unsent int      // bytes to be sent in all
	more   chan struct{}
	// waiting are the parts that have no answer yet. The first taken of them have been handed to the connection.
	waiting  partQueue
	taken    int
	ended    bool
	doomed   bool     // it is no master any more, and will be ended if it says nothing
	answered *request // the last
	state    nodeState

	scan resp.Scanner
	cur  pieces // of the reply that scan is within, as far as nobody has got it
	drop bool   // the rest of that reply is of no use to anybody
}

// nodeState is what a connection would lose with its end, beyond what it owes.
type nodeState struct {
	commands.Subscriptions
	pending bool // the first subscription has been asked for
	monitor bool
}

// newNode begins to open a connection to addr, or takes one over that is open. c.mu is held.
func (c *Conn) newNode(addr string, nc net.Conn) *node {
	n := &node{c: c, addr: addr, nc: nc, more: make(chan struct{}, 1)}
	c.nodes[addr] = n
	setup := c.setup
	c.running.Go(func() { n.run(setup) }) // ends when the connection does; Close ends and awaits it
	return n
}

// push asks the node for p. c.mu is held.
func (n *node) push(p *part) {
	if p.req.before != nil {
		p.req.before(n)
	}
	if p.asking {
		p.asking = false
		n.push(&n.c.ownRequest(askingCommand, nil).one)
	}
	if c := n.c; c.caching != nil && !p.req.hidden {
		caching := c.caching
		c.caching = nil
		if n != c.home {
			n.push(&c.ownRequest(caching, nil).one)
		}
	}
	p.node = n
	kept := n.gather(p.raw)
	if p.raw != nil {
		p.raw = kept
	}
	n.waiting.push(p)
	n.wake()
}

var askingCommand = resp.AppendCommand(nil, "ASKING")

// gather adds bytes to what is to be sent, and returns where they are now.
func (n *node) gather(raw []byte) []byte {
	if cap(n.tail)-len(n.tail) < len(raw) {
		if len(n.tail) > n.sent {
			n.full = append(n.full, n.tail[n.sent:])
		}
		size := min(max(2*cap(n.tail), minChunk), maxChunk)
		n.tail, n.sent = make([]byte, 0, max(size, len(raw))), 0
	}
	from := len(n.tail)
	n.tail = append(n.tail, raw...)
	n.unsent += len(raw)
	return n.tail[from:len(n.tail):len(n.tail)]
}

func (n *node) wake() {
	select {
	case n.more <- struct{}{}:
	default:
	}
}

// dial opens the connection, set up as the others are.
func (n *node) dial(as setup) (net.Conn, error) {
	c := n.c
	ctx, cancel := context.WithTimeout(c.ctx, c.Timeout)
	defer cancel()
	nc, err := c.Dial(ctx, n.addr, as.replay())
	if isRefusal(err) && as.told[0] != nil {
		c.mu.Lock()
		takenBack := !slices.Equal(as.told[0], c.setup.told[0])
		c.mu.Unlock()
		if takenBack { // others have refused that login too: the client is who it was before
			as.told[0] = nil
			return c.Dial(ctx, n.addr, as.replay())
		}
	}
	return nc, err
}

// run opens the connection, if it isn't, and sends what there is until it ends.
func (n *node) run(as setup) {
	c := n.c
	if n.nc == nil {
		nc, err := n.dial(as)
		c.mu.Lock()
		if err != nil {
			n.end(err)
			c.mu.Unlock()
			return
		}
		n.nc = nc
		if n.ended {
			nc.Close()
		}
		c.mu.Unlock()
	}
	c.running.Go(n.read) // ends when the connection does; Close ends and awaits it
	for {
		select {
		case <-n.more:
		case <-c.ctx.Done():
			return
		}
		out, half, ended := n.take()
		if ended {
			return
		}
		if _, err := out.WriteTo(n.nc); err != nil {
			n.nc.Close() // the reader reports the loss
			return
		}
		if half {
			n.closeWrite()
			return
		}
	}
}

// take is what there is to send now.
func (n *node) take() (out net.Buffers, half, ended bool) {
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	out = n.full
	if len(n.tail) > n.sent {
		out = append(out, n.tail[n.sent:])
	}
	n.full, n.sent, n.unsent = nil, len(n.tail), 0
	n.taken = n.waiting.len()
	n.c.signalRoom()
	return out, n.c.half, n.ended
}

// closeWrite tells the node that nothing more will be asked.
func (n *node) closeWrite() {
	if half, ok := n.nc.(interface{ CloseWrite() error }); !ok || half.CloseWrite() != nil {
		n.nc.Close()
	}
}

// read gives out replies until the connection ends.
func (n *node) read() {
	err := n.copyReplies()
	n.nc.Close()
	n.c.mu.Lock()
	n.end(err)
	n.c.mu.Unlock()
	n.wake()
}

func (n *node) copyReplies() error {
	buf, used := make([]byte, minRead), 0
	for {
		k, err := n.nc.Read(buf[used:])
		if perr := n.pass(buf[used : used+k]); perr != nil {
			return perr
		}
		if errors.Is(err, io.EOF) {
			return errors.New("closed by the node")
		}
		if err != nil {
			return err
		}
		full := k == len(buf)-used
		used += k // what was read stays where it is until it has been given to the client
		if len(buf)-used < len(buf)/4 {
			size := len(buf)
			if full && size < maxRead {
				size *= 2
			}
			buf, used = make([]byte, size), 0
		}
	}
}

// pass gives what was read to those who wait for it. It waits while the client leaves too much unread.
func (n *node) pass(data []byte) error {
	c := n.c
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(data) > 0 && !n.ended {
		k, done, err := n.scan.Scan(data)
		if err != nil {
			return err
		}
		if !n.drop {
			n.cur.add(data[:k])
		}
		data = data[k:]
		switch {
		case done:
			if err := n.complete(); err != nil {
				return err
			}
		case n.cur.size >= passFrom:
			n.passPartial()
		}
	}
	for c.buffered > maxBuffered && !n.ended && !c.headNeeds(n) {
		c.waitRoom()
	}
	return nil
}

// passPartial gives on what has come of a large reply, if it is known whose it is and goes to the client as it is.
func (n *node) passPartial() {
	h := n.scan.Head()
	p := n.waiting.head()
	switch {
	case p == nil || h.IsError() || h.Type == '>' || p.confirms != 0 || n.unasked(h):
	case p.req.finish != nil || p.req.hidden:
		if n.cur.size > maxJoined {
			n.cur, n.drop = pieces{}, true
		}
	default:
		p.passed = true
		n.c.give(p.req, n.cur)
		n.cur = pieces{}
	}
}

var tooLarge = resp.AppendError(nil, "ERR the reply of a node is too large to be put together with those of others")

// complete is called at the end of each reply.
func (n *node) complete() error {
	h, reply := n.scan.Head(), n.cur
	n.cur = pieces{}
	if n.drop {
		n.drop = false
		reply.add(tooLarge)
	}
	if n.unasked(h) {
		n.c.unasked(n, h, reply)
		return nil
	}
	p := n.waiting.head()
	if p == nil {
		return errors.New("the node sent a reply that nobody had asked for")
	}
	if p.confirms != 0 && n.confirmed(p, h, &reply) {
		return nil
	}
	n.waiting.pop()
	n.taken = max(n.taken-1, 0)
	n.c.answered(n, p, h, reply)
	return nil
}

// end answers what is owed as lost, or asks elsewhere for what wasn't sent, after the connection has ended. c.mu is held.
func (n *node) end(err error) {
	c := n.c
	if n.ended {
		return
	}
	n.ended = true
	if n.nc != nil {
		n.nc.Close()
	}
	if c.nodes[n.addr] == n {
		delete(c.nodes, n.addr)
	}
	if c.home == n {
		c.home = nil
	}
	c.lost(n, err)
	n.wake()
}
