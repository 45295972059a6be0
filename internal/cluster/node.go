package cluster

import (
	"context"
	"net"
	"slices"

	"lockproxy/internal/commands"
	"lockproxy/internal/resp"
)

// node is a Conn's connection to one node. It opens in the background. Conn.mu guards it, except
// nc once it is open, and incoming's buffer.
type node struct {
	c    *Conn
	addr string
	nc   net.Conn // nil until it is open
	out  outgoing
	in   incoming
	// waiting is the parts without an answer, in order. The first sentCount of them may have
	// reached the node.
	waiting      partQueue
	sentCount    int
	lastAnswered *request // of the client's
	ended        bool
	closing      bool // it is no master any more, and is ended if it does not answer soon
	state        nodeState
}

// incoming is the reply that a node is sending.
type incoming struct {
	scan       resp.Scanner
	partial    pieces // what has come and was not delivered
	discarding bool   // what comes of it is of no use
}

// nodeState is what a connection would lose with its end, in addition to what it has to answer.
type nodeState struct {
	commands.Subscriptions
	pending bool // the first subscription is not confirmed yet
	monitor bool
}

// subscribed reports whether there are subscriptions, or will be.
func (s *nodeState) subscribed() bool { return s.pending || s.All() > 0 }

var askingCommand = resp.AppendCommand(nil, "ASKING")

// push sends p. c.mu is held.
func (n *node) push(p *part) {
	if p.req.beforeSend != nil {
		p.req.beforeSend(n)
	}
	if p.asking {
		p.asking = false
		n.sendOwn(askingCommand)
	}
	if caching := n.c.tx.caching; caching != nil && !p.req.internal {
		n.c.tx.caching = nil
		if n != n.c.nodes.dflt {
			n.sendOwn(caching)
		}
	}
	p.node = n
	kept := n.out.add(p.raw)
	if p.raw != nil {
		p.raw = kept
	}
	n.waiting.push(p)
	n.wake()
}

// sendOwn sends a request whose reply does not matter. c.mu is held.
func (n *node) sendOwn(raw []byte) { n.push(&n.c.ownRequest(raw).one) }

// owes is how many requests for a slot n has still to answer.
func (n *node) owes(slot int) (count int) {
	for _, p := range n.waiting.all() {
		if p.slot == slot {
			count++
		}
	}
	return count
}

// wake has run look for something to do.
func (n *node) wake() {
	select {
	case n.out.more <- struct{}{}:
	default:
	}
}

// run opens the connection, if it isn't, and sends until it ends.
func (n *node) run(as settings) {
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
	c.running.Go(n.read) // ends with the connection; Close waits for it
	for {
		select {
		case <-n.out.more:
		case <-c.ctx.Done():
			return
		}
		out, last, ended := n.nextWrite()
		if ended {
			return
		}
		if _, err := out.WriteTo(n.nc); err != nil {
			n.nc.Close() // read reports the loss
			return
		}
		if last {
			if half, ok := n.nc.(interface{ CloseWrite() error }); !ok || half.CloseWrite() != nil {
				n.nc.Close()
			}
			return
		}
	}
}

// dial opens the connection, with the settings of the others.
func (n *node) dial(as settings) (net.Conn, error) {
	c := n.c
	ctx, cancel := context.WithTimeout(c.ctx, c.Timeout)
	defer cancel()
	nc, err := c.Dial(ctx, n.addr, as.commands())
	if _, refused := refusalOf(err); refused && as.kept[0] != nil {
		c.mu.Lock()
		reverted := !slices.Equal(as.kept[0], c.settings.kept[0])
		c.mu.Unlock()
		if reverted { // other nodes have refused that login too: the client has its old one
			as.kept[0] = nil
			return c.Dial(ctx, n.addr, as.commands())
		}
	}
	return nc, err
}

// nextWrite returns what is to be sent now. last says that nothing comes behind it.
func (n *node) nextWrite() (out net.Buffers, last, ended bool) {
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	n.sentCount = n.waiting.len()
	n.c.room.Broadcast()
	return n.out.take(), n.c.writeClosed, n.ended
}

// end ends the connection. What has no answer is answered as lost, or sent to another node. c.mu is
// held.
func (n *node) end(err error) {
	if n.ended {
		return
	}
	n.ended = true
	if n.nc != nil {
		n.nc.Close()
	}
	n.c.nodes.forget(n)
	n.c.answers.lost(n, err)
	n.wake()
}
