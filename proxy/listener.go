package proxy

import (
	"errors"
	"net"
	"sync"
	"time"
)

// listener hands redcon connections that it can't close: redcon closes a connection whose accept callback answers false,
// which is how sessions take theirs over. It also waits between failing Accepts, which redcon would repeat without pause.
type listener struct {
	net.Listener
	closing sync.Once
	closed  chan struct{}
}

func newListener(ln net.Listener) *listener {
	return &listener{Listener: ln, closed: make(chan struct{})}
}

// accepted is a connection whose owner is the session; Close of this wrapper does nothing.
type accepted struct{ net.Conn }

func (accepted) Close() error { return nil }

const (
	minAcceptDelay = 5 * time.Millisecond
	maxAcceptDelay = time.Second
)

func (l *listener) Accept() (net.Conn, error) {
	for delay := minAcceptDelay; ; delay = min(2*delay, maxAcceptDelay) {
		nc, err := l.Listener.Accept()
		if err == nil {
			return accepted{nc}, nil
		}
		if errors.Is(err, net.ErrClosed) || delay == maxAcceptDelay {
			return nil, err
		}
		// Out of file descriptors, most likely: what is open must close first.
		select {
		case <-l.closed:
			return nil, net.ErrClosed
		case <-time.After(delay):
		}
	}
}

func (l *listener) Close() error {
	l.closing.Do(func() { close(l.closed) })
	return l.Listener.Close()
}
