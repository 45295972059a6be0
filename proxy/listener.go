package proxy

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"lockproxy/internal/loopguard"
)

// listener hands redcon connections that it can't close: redcon closes a connection whose accept
// callback answers false, which is how sessions take theirs over. It also pauses between Accepts
// that fail, which redcon would repeat at once.
type listener struct {
	net.Listener
	closing sync.Once
	closed  chan struct{}
	ended   chan struct{} // closed when nothing is accepted any more
	ending  sync.Once
	// last is until when connections that come meanwhile are accepted; nil while all are.
	last atomic.Pointer[time.Time]
	late int // those accepted after that, since they waited already; of the accepting goroutine
}

func newListener(ln net.Listener) *listener {
	return &listener{Listener: ln, closed: make(chan struct{}), ended: make(chan struct{})}
}

// accepted is a connection whose owner is the session; Close of this wrapper does nothing.
type accepted struct{ net.Conn }

func (accepted) Close() error { return nil }

const (
	minAcceptDelay = 5 * time.Millisecond
	maxAcceptDelay = time.Second
)

func (l *listener) Accept() (net.Conn, error) {
	loopguard.MayWait()
	for delay := minAcceptDelay; ; delay = min(2*delay, maxAcceptDelay) {
		if l.isOver() {
			return nil, l.end()
		}
		nc, err := l.Listener.Accept()
		if err == nil {
			return accepted{nc}, nil
		}
		if isTimeout(err) && l.connWaits() {
			l.deadline() // it had passed before Accept looked
			continue
		}
		if errors.Is(err, net.ErrClosed) || isTimeout(err) {
			return nil, l.end()
		}
		if delay == maxAcceptDelay {
			return nil, err
		}
		// Out of file descriptors, most likely: what is open must close first.
		select {
		case <-l.closed:
			return nil, l.end()
		case <-time.After(delay):
		}
	}
}

// maxLate bounds the connections that are accepted after last: they could keep coming.
const maxLate = 4096

// isOver reports whether nothing more is to be accepted.
func (l *listener) isOver() bool {
	last := l.last.Load()
	if last == nil || time.Now().Before(*last) {
		return false
	}
	l.late++
	return l.late > maxLate || !l.connWaits()
}

// connWaits reports whether a connection can be accepted at once.
func (l *listener) connWaits() bool {
	conn, ok := l.Listener.(syscall.Conn)
	if !ok {
		return false
	}
	control, err := conn.SyscallConn()
	return err == nil && readable(control)
}

// end records that nothing is accepted any more.
func (l *listener) end() error {
	l.ending.Do(func() { close(l.ended) })
	return net.ErrClosed
}

// lastAccepts is how long finish waits for each connection that the kernel has already made: it
// would be reset when the listener closes. A client of a busy machine is connected tens of
// milliseconds before its kernel handles the packet that tells the listener.
const lastAccepts = 100 * time.Millisecond

// finish accepts the connections that wait already, and closes. It returns when nothing is accepted
// any more: soon after until, if connections keep coming, as when another process accepts from the
// same socket. Those that wait then are accepted, too: the machine may have stopped for so long.
func (l *listener) finish(until time.Time) {
	loopguard.MayWait()
	l.last.Store(&until)
	l.deadline()
	<-l.ended
	l.Close()
}

// deadline lets Accept return when no client has come for a while. It closes a listener that has no
// deadlines.
func (l *listener) deadline() {
	ln, ok := l.Listener.(interface{ SetDeadline(time.Time) error })
	if !ok || ln.SetDeadline(time.Now().Add(lastAccepts)) != nil {
		l.Close()
	}
}

func (l *listener) Close() error {
	l.closing.Do(func() { close(l.closed) })
	return l.Listener.Close()
}
