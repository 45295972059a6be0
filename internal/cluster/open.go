package cluster

import (
	"context"
	"errors"
	"net"
	"slices"
	"time"

	"lockproxy/internal/loopguard"
)

// candidateTimeout bounds the attempt to begin a Conn at one node while there are others: a node
// that was stopped still accepts connections, and is silent.
const candidateTimeout = time.Second

// Open makes a Conn with a connection to one node, which shows that the cluster can be reached and
// lets the user in. The error is Dial's.
func (cl *Cluster) Open(ctx context.Context, o Options) (*Conn, error) {
	if o.Early && cl.slots.Load() != nil {
		return cl.openEarly(ctx, o)
	}
	err := errNoNode
	candidates := cl.candidates()
	for i, addr := range candidates {
		dialCtx, cancel := ctx, context.CancelFunc(func() {})
		if i < len(candidates)-1 {
			dialCtx, cancel = context.WithTimeout(ctx, candidateTimeout)
		}
		var nc net.Conn
		nc, err = o.Dial(dialCtx, addr, newSettings(o.Setup).requests())
		cancel()
		if _, refused := refusalOf(err); refused {
			return nil, err
		}
		if err == nil && cl.slots.Load() == nil {
			if err = cl.bootstrap(ctx, nc, addr); err != nil {
				nc.Close()
			}
		}
		if err != nil {
			if ctx.Err() != nil {
				return nil, err
			}
			continue
		}
		c := newConn(cl, o)
		// A user that may not ask for the map begins at any node. Otherwise it may have become
		// known only now, and addr be a replica.
		if m := c.nodes.slots; m == nil || slices.Contains(m.masters, addr) {
			cl.add(c)
			c.mu.Lock()
			defer c.mu.Unlock()
			c.nodes.dflt = c.nodes.open(addr, nc)
			c.nodes.openMasters()
			return c, nil
		}
		nc.Close()
		return cl.Open(ctx, o) // at a master
	}
	return nil, err
}

// openEarly begins to open the connections to all masters, and returns when one is open.
func (cl *Cluster) openEarly(ctx context.Context, o Options) (*Conn, error) {
	loopguard.MayWait()
	c := newConn(cl, o)
	cl.add(c)
	stop := context.AfterFunc(ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.room.Broadcast()
	})
	defer stop()
	c.mu.Lock()
	c.nodes.openMasters()
	err := c.nodes.awaitOne(ctx)
	c.mu.Unlock()
	if err != nil {
		c.Close()
		c.Wait()
		return nil, err
	}
	return c, nil
}

// awaitOne waits until a connection is open, which is the default node's. c.mu is held, but not all
// the time.
func (s *nodeSet) awaitOne(ctx context.Context) error {
	loopguard.MayWait()
	for {
		for _, n := range s.byAddr {
			if n.Conn != nil {
				s.dflt = n
				return nil
			}
		}
		_, refused := refusalOf(s.failed)
		switch {
		case refused || len(s.byAddr) == 0:
			return s.failed
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
		s.c.room.Wait()
	}
}

// bootstrap asks the first node for the map. It is no error if the user may not ask.
func (cl *Cluster) bootstrap(ctx context.Context, nc net.Conn, addr string) error {
	m, epoch, err := askNode(ctx, nc, addr)
	if err == nil {
		cl.update(m, epoch, time.Now())
	}
	if errors.As(err, new(nodeError)) {
		return nil
	}
	return err
}
