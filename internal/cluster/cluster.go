package cluster

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// lookEvery is how often the nodes are asked who serves what, without a reason.
	lookEvery = time.Second
	// lookGap is the least time between two questions.
	lookGap = 50 * time.Millisecond
	// lookPatience bounds one question.
	lookPatience = time.Second
	// doorPatience bounds the attempt to begin a Conn at one node, as long as there are others: a node that has stopped takes connections and
	// says nothing.
	doorPatience = time.Second
	// behindAfter is for how long no node must have known the newest epoch before one that knows only an older one is believed. A master that
	// comes back takes itself for one until others have told it that it was replaced, which is a matter of a second or two.
	behindAfter = 10 * time.Second
)

// Cluster is what is known of a cluster. Safe for concurrent use.
type Cluster struct {
	seeds []string // host:port
	slots atomic.Pointer[slotMap]
	// replaced is called before a map is used in which a replica has become a master; nil is nobody.
	replaced atomic.Pointer[func(master string)]

	mu      sync.Mutex
	conns   map[*Conn]struct{} // guarded by mu
	looking bool               // guarded by mu
	looked  time.Time          // guarded by mu; when the last look began
	epoch   int64              // guarded by mu; of what slots is from
	current time.Time          // guarded by mu; when a node last knew that epoch, or a newer one
}

// New returns a Cluster that is found by its seeds, host:port. Nothing is asked yet.
func New(seeds []string) *Cluster {
	return &Cluster{seeds: seeds, conns: map[*Conn]struct{}{}}
}

// String names the cluster by its seeds.
func (cl *Cluster) String() string { return strings.Join(cl.seeds, ",") }

// Open makes a Conn, with a connection to one node: that it can be had, and lets the user in, is known then. The error is Dial's.
func (cl *Cluster) Open(ctx context.Context, o Options) (*Conn, error) {
	err := errors.New("no node is known")
	doors := cl.doors()
	for i, addr := range doors {
		patience, cancel := ctx, context.CancelFunc(func() {})
		if i < len(doors)-1 {
			patience, cancel = context.WithTimeout(ctx, doorPatience)
		}
		nc, dialErr := o.Dial(patience, addr, nil)
		cancel()
		if dialErr != nil {
			err = dialErr
			if isRefusal(err) || ctx.Err() != nil {
				return nil, err
			}
			continue
		}
		if cl.slots.Load() != nil {
			return cl.conn(o, addr, nc), nil
		}
		if err = cl.introduce(ctx, nc, addr); err != nil {
			nc.Close()
			if ctx.Err() != nil {
				return nil, err
			}
			continue
		}
		m := cl.slots.Load()
		if m == nil || slices.Contains(m.masters, addr) {
			return cl.conn(o, addr, nc), nil // or one that doesn't tell this user
		}
		nc.Close()
		return cl.Open(ctx, o) // by a master
	}
	return nil, err
}

// introduce asks the first node that can be reached who serves what. It is no failure if that isn't told to this user.
func (cl *Cluster) introduce(ctx context.Context, nc net.Conn, addr string) error {
	stop := context.AfterFunc(ctx, func() { nc.SetDeadline(time.Unix(1, 0)) })
	m, epoch, err := askNode(nc, addr)
	if !stop() {
		return context.Cause(ctx)
	}
	if err == nil {
		cl.learn(m, epoch, time.Now())
	} else if !isNodeError(err) {
		return err
	}
	return nil
}

// conn makes a Conn whose home is at addr.
func (cl *Cluster) conn(o Options, addr string, nc net.Conn) *Conn {
	c := newConn(cl, o)
	cl.mu.Lock()
	cl.conns[c] = struct{}{}
	cl.mu.Unlock()
	c.mu.Lock()
	c.home = c.newNode(addr, nc)
	c.mu.Unlock()
	return c
}

// doors is where a connection may begin: the masters if they are known, else the seeds; in any order.
func (cl *Cluster) doors() []string {
	addrs := slices.Clone(cl.seeds)
	if m := cl.slots.Load(); m != nil {
		addrs = slices.Clone(m.masters)
	}
	rand.Shuffle(len(addrs), func(i, j int) { addrs[i], addrs[j] = addrs[j], addrs[i] })
	return addrs
}

// forget is called when a Conn has ended.
func (cl *Cluster) forget(c *Conn) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	delete(cl.conns, c)
}

// moved takes note of a MOVED, and returns the map that says so; nil if none is known, since one slot says too little.
func (cl *Cluster) moved(slot int, addr string) *slotMap {
	for {
		m := cl.slots.Load()
		if m == nil || m.master(slot) == addr {
			return m
		}
		changed := m.with(slot, addr)
		cl.tellReplaced(m, changed)
		if cl.slots.CompareAndSwap(m, changed) {
			return changed
		}
	}
}

// OnReplaced has f called whenever a replica is found to have become a master, before the first request is sent to it as one. What was
// asked before that, and is sent there because a node says so, may be on its way. f must not block.
func (cl *Cluster) OnReplaced(f func(master string)) { cl.replaced.Store(&f) }

func (cl *Cluster) tellReplaced(old, m *slotMap) {
	f := cl.replaced.Load()
	if f == nil || old == nil {
		return
	}
	for _, master := range m.promoted(old) {
		(*f)(master)
	}
}

// learn takes a map over that a node has told, with the cluster's epoch as the node knows it. One that knows an older one is behind, and
// isn't believed as long as others know better. Conns that wait for a node which is no master any more are told.
func (cl *Cluster) learn(m *slotMap, epoch int64, now time.Time) (ok bool) {
	cl.mu.Lock()
	if epoch < cl.epoch && now.Sub(cl.current) < behindAfter {
		cl.mu.Unlock()
		return false
	}
	cl.epoch, cl.current = epoch, now
	if old := cl.slots.Load(); old == nil || !old.equal(m) {
		cl.tellReplaced(old, m)
		cl.slots.Store(m)
	}
	conns := make([]*Conn, 0, len(cl.conns))
	for c := range cl.conns {
		conns = append(conns, c)
	}
	cl.mu.Unlock()
	for _, c := range conns {
		c.learned()
	}
	return true
}

// Masters is how many nodes serve slots, and whether all slots are served, as far as is known.
func (cl *Cluster) Masters() (masters int, whole bool) {
	m := cl.slots.Load()
	if m == nil {
		return 0, false
	}
	return len(m.masters), m.whole()
}
