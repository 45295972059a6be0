package proxy

import (
	"errors"
	"io"
	"net"
	"syscall"
	"time"
)

// Gone reports whether the client is known to have closed at this moment: whether the kernel has its FIN or reset, and nothing
// sent before it is left to read. It takes nothing from the connection.
func (s *session) Gone() bool {
	if s.readErr != nil {
		return true
	}
	if s.watch != nil {
		select {
		case <-s.watch.gone:
			return true
		default:
		}
	}
	n, err := s.peek()
	return n == 0 && err == nil || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, net.ErrClosed)
}

// A lock is released if its token crossed with the end of the connection: nobody has it, and all would wait for its timeout. But the end
// of a connection doesn't tell what the client has read. A kernel whose process dies sends a reset if something is unread; a balancer
// sends one too, when nothing has been said on a connection for long, and its client may hold a lock and work. So a lock is given up when
//
//   - its token was never given to the kernel, since writing failed; or
//   - the client's FIN did not acknowledge the token, and the token was answered by a reset: it had closed before; or
//   - a reset came, without a FIN, so soon behind the token that they are taken to have crossed.
//
// Only the last is not certain. Otherwise the lock is its holder's until its timeout.

const (
	// crossing is how soon behind a token a reset is taken to have crossed with it.
	crossing = 100 * time.Millisecond
	// crossPatience is how long a client that has closed may take to say what became of a token that was on its way.
	crossPatience = time.Second
)

// grant is when and where a client was given the last lock's token.
type grant struct {
	at  time.Time
	end uint64 // how many bytes it had been given then, at least
}

// unheard reports whether the token is taken never to have reached the client. It is called when nothing is written any more and the
// connection is still open.
func (s *session) unheard(g grant) bool {
	written := s.meter.out.Load()
	switch {
	case written < g.end:
		return s.pipe.Failed()
	case errors.Is(s.readErr, syscall.ECONNRESET):
		return time.Since(g.at) < crossing
	case !errors.Is(s.readErr, io.EOF) || s.nc != s.raw && written > g.end: // encrypted, what follows has more bytes than are counted
		return false
	}
	for over := time.Now().Add(crossPatience); ; time.Sleep(2 * time.Millisecond) {
		unacknowledged, err := sendQueue(s.raw)
		if err != nil || unacknowledged <= int(written-g.end) {
			return false
		}
		if s.broken() {
			return true
		}
		if s.ctx.Err() != nil || time.Now().After(over) {
			return false
		}
	}
}

// broken reports whether a reset has come behind the end of what the client sent.
func (s *session) broken() bool {
	conn, ok := s.raw.(syscall.Conn)
	if !ok {
		return false
	}
	control, err := conn.SyscallConn()
	if err != nil {
		return false
	}
	pending := 0
	control.Control(func(fd uintptr) { pending, _ = syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_ERROR) })
	return pending != 0
}
