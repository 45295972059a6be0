package passthrough

import (
	"io"
	"net"
	"testing"
	"time"

	"lockproxy/internal/monotonic"
	"lockproxy/internal/testwait"
	"lockproxy/internal/upstream"
)

// addSpare has a connection wait for its client, on which Redis was heard some time ago. It returns
// the upstream's end.
func (s *scripted) addSpare(t *testing.T, silent time.Duration, nobody bool) (far net.Conn) {
	t.Helper()
	near, far := tcpPair(t)
	p := s.lanes
	p.spares.mu.Lock()
	defer p.spares.mu.Unlock()
	p.addLocked(spare{Conn: near, server: upstream.Server{Addr: p.Upstream.Addr}, nobody: nobody,
		heardAt: monotonic.Now() - int64(silent)})
	return far
}

// Where Redis closes idle connections, spares are closed after a part of that time, and do not count
// as homes for clients to come; a client gets none that Redis is about to close.
func TestSparesAreNotIdle(t *testing.T) {
	s := newScripted(t, 1)
	p := s.lanes
	old := s.addSpare(t, 25*time.Second, false)
	young := s.addSpare(t, 5*time.Second, false)
	middle := s.addSpare(t, 15*time.Second, false)
	p.Suspend(true, time.Minute) // a third of that
	old.SetReadDeadline(testwait.Deadline())
	if _, err := old.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the oldest is still open: %v", err)
	}
	if open, _ := p.spares.count(); open != 2 {
		t.Errorf("%d wait for clients", open)
	}
	p.Suspend(true, 3*time.Second)
	if open, _ := p.spares.count(); open != 0 {
		t.Errorf("%d wait for clients", open)
	}
	for _, far := range []net.Conn{young, middle} {
		far.SetReadDeadline(testwait.Deadline())
		if _, err := far.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("one is still open: %v", err)
		}
	}
}
