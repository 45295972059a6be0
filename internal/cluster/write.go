package cluster

import (
	"errors"
	"math/rand/v2"
	"os"
	"time"

	"lockproxy/internal/resp"
)

// maxHeld is how long a request may be that is kept until it has been answered, so that it can be sent elsewhere, bytes. One that is
// longer is sent as it comes, if its beginning says where; else it is held up to maxJoined.
const maxHeld = 1 << 20

// Write takes requests, and sends each to where its keys are. What it is given may end within a request.
func (c *Conn) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return 0, c.err
	}
	c.adopt(c.cluster.slots.Load())
	data := b
	if len(c.rest) > 0 {
		c.rest = append(c.rest, b...)
		data = c.rest
	}
	rest, err := c.requests(data)
	if err != nil {
		c.endLocked(err)
		return 0, err
	}
	c.rest = append(c.rest[:0], rest...)
	if len(rest) == 0 && cap(c.rest) > maxChunk {
		c.rest = nil
	}
	for c.full() && c.err == nil {
		if c.writeUntil.passed {
			return 0, os.ErrDeadlineExceeded
		}
		c.waitRoom()
	}
	if c.err != nil {
		return 0, c.err
	}
	return len(b), nil
}

// full reports whether no more requests should be taken for now.
func (c *Conn) full() bool {
	return c.kept > maxKept || c.streaming != nil && c.streaming.full()
}

// requests sends the whole requests in data on their way, and returns what is left. mu is held.
func (c *Conn) requests(data []byte) (rest []byte, err error) {
	for len(data) > 0 {
		req, whole, err := c.framer.Next(data)
		if err != nil {
			return nil, err
		}
		data = data[len(req.Raw):]
		switch {
		case c.streaming != nil:
			c.streaming.add(req.Raw)
			if whole {
				c.streaming = nil
			}
		case whole && len(req.Args) > 0:
			c.route(req.Args, req.Raw)
		}
		if !whole {
			break
		}
	}
	if len(data) > maxHeld && c.streaming == nil {
		data, err = c.stream(data)
	}
	return data, err
}

// route sends one request on its way. mu is held.
func (c *Conn) route(args [][]byte, raw []byte) {
	q := &query{cmd: lookup(args), args: args, raw: raw}
	if c.txn != nil {
		c.queue(q)
		return
	}
	if n := c.subscribedAt(); n != nil && !whenSubscribed[q.cmd.Name] {
		c.askAt(q, n)
		return
	}
	q.cmd.run(c, q)
}

// whenSubscribed are the commands that are as ever in protocol 2's subscribe mode, but for PING.
var whenSubscribed = map[string]bool{"subscribe": true, "psubscribe": true, "ssubscribe": true, "unsubscribe": true, "punsubscribe": true, "sunsubscribe": true,
	"quit": true, "reset": true}

// query is a request on its way.
type query struct {
	cmd  *command
	args [][]byte
	raw  []byte // aliases what was written: it must be sent or copied
}

// ask sends a request of the client's to the node of a slot, or to home if that is -1. mu is held.
func (c *Conn) ask(q *query, slot int) *request {
	r := newRequest(q.raw, slot)
	c.kept += len(q.raw)
	c.enqueue(r)
	c.dispatch(&r.one)
	return r
}

// dispatch sends a part to where it belongs by its slot. mu is held.
func (c *Conn) dispatch(p *part) {
	if p.slot < 0 {
		c.homeNode().push(p)
		return
	}
	if m := c.moving[p.slot]; m != nil {
		p.raw = append([]byte(nil), p.raw...)
		m.held = append(m.held, p)
		return
	}
	c.slotNode(p.slot).push(p)
}

// slotNode is the connection to who serves a slot. If nobody knows, any node will say. mu is held.
func (c *Conn) slotNode(slot int) *node {
	if c.slots != nil {
		if addr := c.slots.master(slot); addr != "" {
			return c.nodeAt(addr)
		}
	}
	return c.homeNode()
}

// nodeAt is the connection to the node at addr. mu is held.
func (c *Conn) nodeAt(addr string) *node {
	if n := c.nodes[addr]; n != nil {
		return n
	}
	return c.newNode(addr, nil)
}

// homeNode is where requests without keys go: a master that there is a connection to, if there is one. mu is held.
func (c *Conn) homeNode() *node {
	if c.home != nil {
		return c.home
	}
	addrs := c.cluster.seeds
	if c.slots != nil {
		addrs = c.slots.masters
	}
	for _, addr := range addrs {
		if n := c.nodes[addr]; n != nil {
			c.home = n
			return n
		}
	}
	c.home = c.nodeAt(addrs[rand.IntN(len(addrs))])
	return c.home
}

// doomedFor is how long a node that is no master any more may take to say so of what it was asked.
const doomedFor = time.Second

var errReplaced = errors.New("it is no master any more, and does not answer")

// learned takes the newest map over. Nodes that are no masters any more are asked for a sign of life if something is awaited from them.
func (c *Conn) learned() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.adopt(c.cluster.slots.Load())
	for _, n := range c.nodes {
		if master, _ := c.slots.knows(n.addr); master || n.doomed || n.nc == nil || n.waiting.len() == 0 && n.state == (nodeState{}) {
			continue
		}
		// Within a transaction it would be queued too, and answered among what the client asked.
		open := c.txn != nil && c.txn.node == n
		if open && n.waiting.len() == 0 {
			continue
		}
		n.doomed = true
		if !open {
			n.push(&c.ownRequest(pingCommand, nil).one)
		}
		asked := n.waiting.all()[n.waiting.len()-1]
		c.after(doomedFor, func() {
			n.doomed = false
			if asked.node == n && !n.ended {
				n.end(errReplaced)
			}
		})
	}
}

var pingCommand = resp.AppendCommand(nil, "PING")

// stream is a large request that is sent as it comes.
type stream struct {
	c    *Conn
	node *node // nil if it isn't sent anywhere
}

func (s *stream) full() bool {
	return s.node != nil && !s.node.ended && s.node.unsent > maxUnsent
}

// add sends a piece on.
func (s *stream) add(raw []byte) {
	if s.node != nil && !s.node.ended {
		s.node.gather(raw)
		s.node.wake()
	}
}

// stream begins to send the large request at the beginning of data, if it is known where it goes. It returns what is left of data. mu
// is held.
func (c *Conn) stream(data []byte) (rest []byte, err error) {
	args, argc := c.framer.Head(data)
	if len(args) == 0 {
		return data, nil
	}
	slot, ok := lookup(args).headSlot(args, argc)
	if !ok {
		if len(data) > maxJoined {
			return nil, errTooLong
		}
		return data, nil
	}
	raw := c.framer.Stream(data)
	r := newRequest(nil, slot)
	r.one.raw = nil
	c.enqueue(r)
	n := c.slotNode(slot)
	n.gather(raw)
	n.push(&r.one)
	c.streaming = &stream{c: c, node: n}
	return data[len(raw):], nil
}
