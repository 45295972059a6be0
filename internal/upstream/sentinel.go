package upstream

// An upstream that is found by its Sentinels: which of a group's servers is the master, and what
// happens when that changes.

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"lockproxy/internal/loopguard"
	"lockproxy/internal/resp"
)

// sentinels is what is known of one group of servers, and the connections to its master.
//
// Each vote of a Sentinel has the epoch of the configuration that it is from. The highest epoch
// wins, so that Sentinels that have missed a failover lead no client back to the old master.
type sentinels struct {
	group string
	addrs []string      // of the Sentinels
	voted chan struct{} // closed when a Sentinel has answered

	mu sync.Mutex
	// guarded by mu; without an address until a Sentinel has answered
	master    vote
	votes     map[string]vote      // guarded by mu; each Sentinel's last, by its address
	best      map[string]vote      // guarded by mu; each Sentinel's with the highest epoch
	overruled vote                 // guarded by mu; the Sentinels gave it up for a lower epoch
	conns     map[*serverConn]bool // guarded by mu; to master
	lastErr   error                // guarded by mu; why no Sentinel has answered yet
}

// vote is a Sentinel's answer to who is the master.
type vote struct {
	addr  string // host:port
	epoch int64
}

func newSentinels(group string, addrs []string) *sentinels {
	return &sentinels{
		group: group, addrs: addrs, voted: make(chan struct{}),
		votes: map[string]vote{}, best: map[string]vote{}, conns: map[*serverConn]bool{},
		lastErr: errors.New("no Sentinel has been asked yet"),
	}
}

func (s *sentinels) String() string {
	return fmt.Sprintf("%s (by the Sentinels at %s)", s.group, strings.Join(s.addrs, ", "))
}

// electLocked records a Sentinel's vote, and reports whether another master follows from it. A
// higher epoch wins at once, and however many Sentinels have not heard of it yet, they change
// nothing. A vote without a higher epoch wins only if the Sentinels have been set up again. s.mu is
// held.
func (s *sentinels) electLocked(sentinel string, v vote) (replaced bool) {
	s.votes[sentinel] = v
	if best, known := s.best[sentinel]; !known || v.epoch > best.epoch {
		s.best[sentinel] = v
	}
	switch {
	case v == s.master:
		return false
	case s.master.addr == "":
	case v.epoch > s.master.epoch:
		// one that was left out when the others were set up again says it still
		if v == s.overruled && !s.mostLocked(v, false) {
			return false
		}
	default:
		if !s.mostLocked(v, true) || slices.ContainsFunc(slices.Collect(maps.Values(s.votes)),
			func(last vote) bool { return last.epoch > v.epoch }) {
			return false
		}
		s.overruled = s.master
		s.best = maps.Clone(s.votes)
	}
	replaced = v.addr != s.master.addr
	s.master = v
	return replaced
}

// mostLocked reports whether more than half of all Sentinels say v now; with fallen, only those
// count that have said something else for the same epoch, or for a higher one. Sentinels that have
// missed a failover have not: these have been set up again. s.mu is held.
func (s *sentinels) mostLocked(v vote, fallen bool) bool {
	agree := 0
	for sentinel, last := range s.votes {
		if last == v && (!fallen || s.best[sentinel] != v) {
			agree++
		}
	}
	return agree > len(s.addrs)/2
}

// record records a Sentinel's vote. If another master follows from it, replaced is called before
// any connection to that master can be made, and the connections to the old one are closed. old is
// "" for the first.
func (s *sentinels) record(sentinel string, v vote, replaced func(old, master string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.master.addr
	if !s.electLocked(sentinel, v) {
		return
	}
	replaced(old, v.addr)
	if old == "" {
		close(s.voted)
	}
	s.closeAllLocked()
}

// closeConns closes the connections to addr, which has turned out to be a replica.
func (s *sentinels) closeConns(addr string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.master.addr == addr {
		s.closeAllLocked()
	}
}

func (s *sentinels) closeAllLocked() {
	for c := range s.conns {
		delete(s.conns, c)
		c.shutdown()
	}
}

// recordFailure records why a Sentinel can't be asked.
func (s *sentinels) recordFailure(sentinel string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	//lint:ignore ST1005 Sentinel is a name.
	s.lastErr = fmt.Errorf("Sentinel %s: %w", sentinel, err)
}

// firstVoteTimeout is how long a connection waits for the first Sentinel to answer when the proxy
// has just started.
const firstVoteTimeout = time.Second

// current is the master's address.
func (s *sentinels) current(ctx context.Context) (string, error) {
	loopguard.MayWait()
	timeout := time.NewTimer(firstVoteTimeout)
	defer timeout.Stop()
	select {
	case <-s.voted:
	case <-ctx.Done():
	case <-timeout.C:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.master.addr == "" {
		return "", fmt.Errorf("no Sentinel has told who the master is: %w", s.lastErr)
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
	s.conns[c] = true
	return c, nil
}

// serverConn is a connection to a master.
type serverConn struct {
	net.Conn
	of *sentinels
}

// shutdown ends both directions. The reader of the connection sees that, even in an event loop,
// which does not see a Close, and closes the connection.
func (c *serverConn) shutdown() {
	tcp, ok := c.Conn.(*net.TCPConn)
	if !ok {
		c.Conn.Close()
		return
	}
	// Not Close, even if this fails because the server has closed meanwhile: the event loop that
	// reads the connection would hear of neither.
	tcp.CloseWrite()
	tcp.CloseRead()
}

// Close implements net.Conn.
func (c *serverConn) Close() error {
	c.of.mu.Lock()
	delete(c.of.conns, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// Below is the connection itself.
func (c *serverConn) Below() net.Conn { return c.Conn }

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

// checkRole reads the answer to ROLE. If the user may not ask, the Sentinels are trusted.
func checkRole(raw []byte) error {
	v, err := resp.ParseValue(raw)
	if err == nil && len(v.Elems) > 0 && string(v.Elems[0].Text) != "master" {
		return errNotMaster
	}
	return err
}
