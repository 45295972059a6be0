package virtualnet

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// room is how much a stream keeps for its reader, bytes: as much as two sockets do.
const room = 512 << 10

// stream is one direction of a connection.
type stream struct {
	mu           sync.Mutex
	changed      *sync.Cond
	data         []byte   // guarded by mu; written and not yet read
	ended        bool     // guarded by mu; nothing more is written
	err          error    // guarded by mu; it was reset
	noReader     bool     // guarded by mu; the reading end is closed
	noWriter     bool     // guarded by mu; the writing end is closed
	readTimeout  deadline // guarded by mu
	writeTimeout deadline // guarded by mu
}

func newStream() *stream {
	s := &stream{}
	s.changed = sync.NewCond(&s.mu)
	return s
}

// deadline is when a read or a write gives up.
type deadline struct {
	at    time.Time // zero for never
	timer *time.Timer
}

// setLocked changes when d passes. All that wait for changed are woken then. changed.L is held.
func (d *deadline) setLocked(at time.Time, changed *sync.Cond) {
	if d.timer != nil {
		d.timer.Stop()
	}
	if d.at, d.timer = at, nil; !at.IsZero() {
		d.timer = time.AfterFunc(time.Until(at), changed.Broadcast)
	}
	changed.Broadcast()
}

func (d *deadline) passedLocked() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

func (s *stream) read(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.noReader:
			return 0, net.ErrClosed
		case s.readTimeout.passedLocked():
			return 0, os.ErrDeadlineExceeded
		case len(s.data) > 0 || len(b) == 0:
			n := copy(b, s.data)
			s.data = s.data[n:]
			s.changed.Broadcast()
			return n, nil
		case s.err != nil:
			return 0, s.err
		case s.ended:
			return 0, io.EOF
		}
		s.changed.Wait()
	}
}

// write returns unread if the reader has closed: the connection must be reset.
func (s *stream) write(b []byte) (n int, unread bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.noWriter:
			return n, false, net.ErrClosed
		case s.err != nil:
			return n, false, s.err
		case s.ended:
			return n, false, syscall.EPIPE
		case s.writeTimeout.passedLocked():
			return n, false, os.ErrDeadlineExceeded
		case s.noReader:
			return len(b), true, nil
		}
		took := min(len(b)-n, room-len(s.data))
		s.data = append(s.data, b[n:n+took]...)
		n += took
		s.changed.Broadcast()
		if n == len(b) {
			return n, false, nil
		}
		s.changed.Wait()
	}
}

// change calls f with mu held, and wakes those that wait.
func (s *stream) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	s.changed.Broadcast()
}

// reset loses what was not read.
func (s *stream) reset(err error) {
	s.change(func() {
		s.data = nil
		if s.err == nil {
			s.err = err
		}
	})
}
