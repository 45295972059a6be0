package proxy

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// listener hands redcon connections that it can't close: redcon closes a connection whose accept callback answers false,
// which is how sessions take theirs over. It also waits between failing Accepts, which redcon would repeat without pause.
type listener struct {
	net.Listener
	closing sync.Once
	closed  chan struct{}
	ended   chan struct{} // closed when nothing is accepted any more
	ending  sync.Once
	last    atomic.Pointer[time.Time] // only what waits already is accepted, until then at most; nil while all are
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
	looked := false
	for delay := minAcceptDelay; ; delay = min(2*delay, maxAcceptDelay) {
		nc, err := l.Listener.Accept()
		if err == nil {
			return accepted{nc}, nil
		}
		if last := l.last.Load(); isTimeout(err) && last != nil && !looked && time.Now().Before(*last) {
			looked = true
			l.deadline() // somebody may have come when the time was over already
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

// end notes that nothing is accepted any more.
func (l *listener) end() error {
	l.ending.Do(func() { close(l.ended) })
	return net.ErrClosed
}

// lastAccepts is for connections that the kernel has made already: they would be reset when the listener closes.
const lastAccepts = 20 * time.Millisecond

// finish accepts those who wait already, and closes. It returns when nothing is accepted any more: soon after until, if one comes after the
// other, as when another process accepts from the same socket and clients know of no end.
func (l *listener) finish(until time.Time) {
	l.last.Store(&until)
	l.deadline()
	<-l.ended
	l.Close()
}

// deadline lets Accept return when nobody has come for a while; it closes the listener if that can't be asked of it.
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
