package upstream

// An upstream that is found by its Sentinels: which of a group's servers is the master, and what happens
// when that changes.

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"

	"lockproxy/internal/resp"
)

// sentinels is what is known of one group of servers, and the connections to its master.
//
// Each answer of a Sentinel comes with the epoch of the configuration that it is from. A higher epoch
// wins, so that a Sentinel that was cut off and has missed a failover leads nobody back to the old master.
type sentinels struct {
	group          string
	addrs          []string // of the Sentinels
	user, password string   // for the Sentinels; never logged
	known          chan struct{}

	mu     sync.Mutex
	master opinion              // guarded by mu; without an address until a Sentinel has answered
	said   map[string]opinion   // guarded by mu; by each Sentinel's address, its last answer
	undone opinion              // guarded by mu; what most Sentinels gave up for one with a lower epoch
	open   map[*serverConn]bool // guarded by mu; the connections to master
	why    error                // guarded by mu; why no Sentinel has answered yet
}

// opinion is a Sentinel's answer to who is the master.
type opinion struct {
	addr  string // host:port
	epoch int64
}

func newSentinels(group string, addrs []string) *sentinels {
	return &sentinels{
		group: group, addrs: addrs, known: make(chan struct{}),
		said: map[string]opinion{}, open: map[*serverConn]bool{},
		why: errors.New("no Sentinel has been asked yet"),
	}
}

func (s *sentinels) String() string {
	return fmt.Sprintf("%s (by the Sentinels at %s)", s.group, strings.Join(s.addrs, ", "))
}

// electLocked records what a Sentinel says, and reports whether another master follows from it. Without a
// higher epoch it takes more than half of the Sentinels: they have been set up again then. s.mu is held.
func (s *sentinels) electLocked(sentinel string, said opinion) (replaced bool) {
	s.said[sentinel] = said
	if said == s.master {
		return false
	}
	agree := 0
	for _, other := range s.said {
		if other == said {
			agree++
		}
	}
	newer := s.master.addr == "" || said.epoch > s.master.epoch
	if most := agree > len(s.addrs)/2; !most && (!newer || said == s.undone) {
		return false
	}
	if !newer {
		s.undone = s.master
	}
	replaced = said.addr != s.master.addr
	s.master = said
	return replaced
}

// hear records what a Sentinel says. If another master follows from it, replaced is called before any
// connection to that master can be made, and the connections to the old one are closed. old is "" for
// the first.
func (s *sentinels) hear(sentinel string, said opinion, replaced func(old, master string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.master.addr
	if !s.electLocked(sentinel, said) {
		return
	}
	replaced(old, said.addr)
	if old == "" {
		close(s.known)
	}
	s.closeAllLocked()
}

// demoted closes the connections to addr, which has turned out to be a replica.
func (s *sentinels) demoted(addr string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.master.addr == addr {
		s.closeAllLocked()
	}
}

func (s *sentinels) closeAllLocked() {
	for c := range s.open {
		delete(s.open, c)
		c.shut()
	}
}

// failing records why a Sentinel can't be asked.
func (s *sentinels) failing(sentinel string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.why = fmt.Errorf("Sentinel %s: %w", sentinel, err)
}

// firstAnswer is how long a connection waits for the first Sentinel to answer when the proxy has just started.
const firstAnswer = time.Second

// current is the master's address.
func (s *sentinels) current(ctx context.Context) (string, error) {
	patience := time.NewTimer(firstAnswer)
	defer patience.Stop()
	select {
	case <-s.known:
	case <-ctx.Done():
	case <-patience.C:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.master.addr == "" {
		return "", fmt.Errorf("no Sentinel has told who the master is: %w", s.why)
	}
	return s.master.addr, nil
}

// errReplaced is why a connection attempt is given up.
var errReplaced = errors.New("the Sentinels have named another master meanwhile")

// track makes raw one of the connections that end when the master at addr is replaced.
func (s *sentinels) track(raw net.Conn, addr string) (net.Conn, error) {
	c := &serverConn{Conn: raw, of: s}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.master.addr != addr {
		return nil, errReplaced
	}
	s.open[c] = true
	return c, nil
}

// serverConn is a connection to a master.
type serverConn struct {
	net.Conn
	of *sentinels
}

// shut ends both directions. The reader of the connection sees its end, also in an event loop, which does
// not hear of a Close, and closes it.
func (c *serverConn) shut() {
	tcp, ok := c.Conn.(*net.TCPConn)
	if !ok || tcp.CloseWrite() != nil || tcp.CloseRead() != nil {
		c.Conn.Close()
	}
}

// Close implements net.Conn.
func (c *serverConn) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// CloseWrite ends the requests, as a TCP connection's does.
func (c *serverConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// SyscallConn is for go-redis, which looks whether an idle connection has been closed.
func (c *serverConn) SyscallConn() (syscall.RawConn, error) {
	if sc, ok := c.Conn.(syscall.Conn); ok {
		return sc.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

// errNotMaster is why a server that a Sentinel has named is not used, or not any more.
var errNotMaster = errors.New("it is a replica, not the master (any more): " +
	"the Sentinels have not named another yet")

// checkRole reads the answer to ROLE. A user who may not ask is left to what the Sentinels say.
func checkRole(raw []byte) error {
	v, err := resp.ParseValue(raw)
	if err == nil && len(v.Elems) > 0 && string(v.Elems[0].Text) != "master" {
		return errNotMaster
	}
	return err
}
