package cluster

import (
	"context"
	"net"

	"lockproxy/internal/commands"
	"lockproxy/internal/eventloop"
	"lockproxy/internal/fifo"
	"lockproxy/internal/resp"
	"lockproxy/internal/socket"
)

// node is a Conn's connection to one node. It opens in the background: until then its Reader has no
// Conn. Conn.mu guards it, except the Reader and socket once it is open.
type node struct {
	eventloop.Reader
	c       *Conn
	addr    string
	socket  *socket.Socket // nil if it has none
	used    bool           // something of the client's was sent
	id      int64          // the connection's number there; 0 if it is not known
	out     outgoing
	sending bool // out is being sent, with whatever is added to it meanwhile
	toSend  bool // it is in requestReader.toSend
	in      incoming
	// waiting is the parts without an answer, in order. The first sentCount of them may have
	// reached the node.
	waiting      fifo.Queue[*part]
	sentCount    int
	lastAnswered *request // of the client's
	ended        bool
	master       bool // what it has to answer can have been asked of a master
	closing      bool // it is no master any more, and is ended if it does not answer soon
	state        nodeState
	copies       copies
}

// incoming is the reply that a node is sending.
type incoming struct {
	full       bool // the client leaves too much unread; only the node's reader looks
	scan       resp.Scanner
	partial    []byte // its part that was not delivered yet
	held       int    // bytes of partial that its request holds: see Conn.hold
	discarding bool   // it is too large, and its rest is dropped
	// notForClient says that it is dropped because it is a message that the client is not to see.
	notForClient bool
	push         *request // what a large message is delivered to; nil if none comes
	// unsharded is a copy of the last part that was answered, if that is a SUNSUBSCRIBE. The
	// messages that looked like its confirmations can have said that the node has dropped the
	// channels. Then a MOVED follows, or the confirmations: from Redis 8.6 on, or if the node still
	// has the slot, since every CLUSTER SETSLOT NODE drops the slot's channels.
	unsharded *part
}

// nodeState is what is lost with the connection, in addition to missing answers.
type nodeState struct {
	commands.Subscriptions
	pending bool // the first subscription is not confirmed yet
	monitor bool
}

// awaited is the part that the node is to answer next; nil if there is none.
func (n *node) awaited() *part {
	if head := n.waiting.Head(); head != nil {
		return *head
	}
	return nil
}

// subscribed reports whether there are subscriptions, or will be.
func (s *nodeState) subscribed() bool { return s.pending || s.All() > 0 }

var askingCommand = resp.AppendCommand(nil, "ASKING")

// push sends p. c.mu is held.
func (n *node) push(p *part) {
	if t := n.c.tx.open; t != nil && t.node == n && !t.sending && !t.paused {
		t.giveWay()
	}
	if p.req.beforeSend != nil {
		p.req.beforeSend(n)
	}
	switch { // each must come right before the request
	case p.asking:
		p.asking = false
		n.sendOwn(askingCommand)
	case p.req.caching != nil:
		n.sendOwn(p.req.caching)
	}
	p.node = n
	n.used = n.used || !p.req.internal
	out := &n.out
	if n == n.c.in.streamTo { // not into the middle of a request
		out = &n.c.in.behind
	}
	copied := out.add(p.raw)
	if p.raw != nil {
		p.raw = copied
	}
	n.c.order.sent(p)
	n.waiting.Push(p)
	n.wake()
}

// sendOwn sends a request whose reply does not matter. c.mu is held.
func (n *node) sendOwn(raw []byte) { n.push(&n.c.ownRequest(raw).one) }

// wake makes sure that n.out is sent: at the end of a Write under way, otherwise in the background.
// c.mu is held.
func (n *node) wake() {
	in := &n.c.in
	switch {
	case in.feeding && !n.toSend:
		n.toSend = true
		in.toSend = append(in.toSend, n)
	case !in.feeding:
		n.sendLater(nil)
	}
}

// sendLater sends rest and n.out in the background, unless that is being done. c.mu is held.
func (n *node) sendLater(rest net.Buffers) {
	if n.sending || n.ended {
		return
	}
	n.sending = true
	n.c.goroutines.Go(func() { n.send(rest) }) // ends when all is sent; Wait waits for it
}

// sendNow sends n.out: as much as the node takes at once before it returns, so that no later
// request overtakes, and the rest in the background. c.mu is held, but not all the time.
func (n *node) sendNow() {
	c := n.c
	n.toSend = false
	if n.sending || n.ended || n.socket == nil || c.writeClosed {
		n.sendLater(nil)
		return
	}
	n.sending = true
	out, _ := n.nextWrite()
	c.mu.Unlock()
	rest, err := n.trySend(out)
	c.mu.Lock()
	if err != nil {
		n.Close() // its reader reports the loss
		return
	}
	n.sending = false
	if len(rest) > 0 || n.out.unsent > 0 || c.writeClosed {
		n.sendLater(rest)
	}
}

// trySend sends as much as the node takes at once, and returns the rest.
func (n *node) trySend(out net.Buffers) (rest net.Buffers, err error) {
	for i, b := range out {
		k, err := n.socket.TryWrite(b)
		if err != nil || k < len(b) {
			out[i] = b[k:]
			return out[i:], err
		}
	}
	return nil, nil
}

// start opens the connection, unless it is open, starts its reader, and sends what was gathered
// meanwhile.
func (n *node) start(as settings) {
	c, nc := n.c, n.Conn
	var err error
	if nc == nil {
		nc, err = n.dial(as)
	}
	c.mu.Lock()
	if err != nil {
		c.nodes.failed = err
		n.end(err)
		c.mu.Unlock()
		return
	}
	n.Conn, n.Bytes, n.To, n.Buffer = nc, nc, n, minRead
	if n.socket = socket.New(nc); n.socket != nil {
		n.Bytes, n.Reg = n.socket, c.Loops.NewRegistration(n, n.socket.Raw())
	}
	if n.ended {
		n.Close()
	} else {
		c.cluster.connected(n.member())
	}
	c.room.Broadcast()
	c.mu.Unlock()
	n.Start(n)
	n.send(nil)
}

// send sends rest, and then n.out, until that is empty.
func (n *node) send(rest net.Buffers) {
	for last := false; ; {
		if _, err := rest.WriteTo(n.Conn); err != nil {
			n.Close() // its reader reports the loss
			return
		}
		if last {
			half, ok := n.Conn.(interface{ CloseWrite() error })
			if !ok || half.CloseWrite() != nil {
				n.Close()
			}
			return
		}
		n.c.mu.Lock()
		rest, last = n.nextWrite()
		if len(rest) == 0 && !last || n.ended {
			n.sending = false
			n.c.mu.Unlock()
			return
		}
		n.c.mu.Unlock()
	}
}

// dial opens the connection, with the settings of the others.
func (n *node) dial(as settings) (net.Conn, error) {
	c := n.c
	ctx, cancel := context.WithTimeout(c.ctx, c.Timeout)
	defer cancel()
	return c.Dial(ctx, n.addr, as.requests())
}

// nextWrite takes n.out. last says that nothing follows. c.mu is held.
func (n *node) nextWrite() (out net.Buffers, last bool) {
	n.sentCount = n.waiting.Len()
	n.c.room.Broadcast()
	return n.out.drain(), n.c.writeClosed
}

// end ends the connection. Requests without an answer are answered as lost, or sent to another
// node. c.mu is held.
func (n *node) end(err error) {
	if n.ended {
		return
	}
	n.ended = true
	if n.Conn != nil {
		n.Close()
	}
	n.c.nodes.forget(n)
	n.c.answers.lost(n, err)
}
