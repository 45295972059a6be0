package passthrough

import (
	"errors"
	"net"
	"syscall"
	"time"
)

// spare is a connection that a session had for itself and left as it was, but for what setup says.
type spare struct {
	conn  net.Conn
	setup Setup
	since time.Time
}

// maxSpareAge is how long a spare is kept: shorter than any timeout that an upstream or a firewall between may have.
const maxSpareAge = 10 * time.Second

// keepSpare keeps a connection for the next session that needs one like it, or closes it.
func (ls *Lanes) keepSpare(conn net.Conn, setup Setup) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.closed {
		conn.Close()
		return
	}
	ls.spares = append(ls.spares, spare{conn, setup, time.Now()})
	if len(ls.spares) > maxSpares {
		ls.spares[0].conn.Close()
		ls.spares = append(ls.spares[:0:0], ls.spares[1:]...)
	}
	if ls.expiry == nil {
		ls.expiry = time.AfterFunc(maxSpareAge, ls.expireSpares)
	}
}

// expireSpares closes those that are old, and comes back for the others. Close stops it.
func (ls *Lanes) expireSpares() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for len(ls.spares) > 0 && time.Since(ls.spares[0].since) >= maxSpareAge {
		ls.spares[0].conn.Close()
		ls.spares = append(ls.spares[:0:0], ls.spares[1:]...)
	}
	ls.expiry = nil
	if len(ls.spares) > 0 && !ls.closed {
		ls.expiry = time.AfterFunc(time.Until(ls.spares[0].since.Add(maxSpareAge)), ls.expireSpares)
	}
}

// takeSpare returns a connection that is set up so and alive, or nil.
func (ls *Lanes) takeSpare(setup Setup) net.Conn {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for i := len(ls.spares) - 1; i >= 0; i-- {
		s := ls.spares[i]
		if s.setup != setup {
			continue
		}
		ls.spares = append(ls.spares[:i:i], ls.spares[i+1:]...)
		if time.Since(s.since) < maxSpareAge && quiet(s.conn) {
			return s.conn
		}
		s.conn.Close()
	}
	return nil
}

// quiet reports whether a connection on which nothing is expected is open, and nothing has come on it.
func quiet(conn net.Conn) bool {
	if s, ok := conn.(*secured); ok {
		conn = s.raw
	}
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	control, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	silent := false
	err = control.Control(func(fd uintptr) {
		var b [1]byte
		_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		silent = errors.Is(err, syscall.EAGAIN)
	})
	return err == nil && silent
}
