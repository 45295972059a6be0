package proxy

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
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
	// last is until when connections that wait already are accepted; nil while all are.
	last atomic.Pointer[time.Time]
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
	repeated := false
	for delay := minAcceptDelay; ; delay = min(2*delay, maxAcceptDelay) {
		nc, err := l.Listener.Accept()
		if err == nil {
			return accepted{nc}, nil
		}
		last := l.last.Load()
		if isTimeout(err) && last != nil && !repeated && time.Now().Before(*last) {
			repeated = true
			l.deadline() // a client may have come when the time was over already
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

// end records that nothing is accepted any more.
func (l *listener) end() error {
	l.ending.Do(func() { close(l.ended) })
	return net.ErrClosed
}

// lastAccepts is how long finish waits for each connection that the kernel has already made: it
// would be reset when the listener closes.
const lastAccepts = 20 * time.Millisecond

// finish accepts the connections that wait already, and closes. It returns when nothing is accepted
// any more: soon after until, if connections keep coming, as when another process accepts from the
// same socket.
func (l *listener) finish(until time.Time) {
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
