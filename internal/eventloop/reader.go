package eventloop

import (
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"lockproxy/internal/loopguard"
)

const (
	// maxBuffer is the most that a goroutine reads at once, bytes.
	maxBuffer = 64 << 10
	// loopBuffer is how much a loop reads at once, bytes: a reply of 64 KB and some more.
	loopBuffer = 72 << 10
)

// Consumer takes the bytes that a Reader reads.
type Consumer interface {
	// Consume handles what was read, in the iteration it, which is nil for a goroutine. An error
	// ends the connection.
	Consume(data []byte, it *Iteration) error
	MustWait() bool // whether Wait would not return at once, or a goroutine reads better
	Wait()          // returns when more should be read
}

// Reader reads one connection. The loop does while nothing has to be waited for, otherwise a
// goroutine does: the connection's Handler calls Ready and Run.
type Reader struct {
	Conn net.Conn
	// Bytes are those of Conn. If it has a TryRead, which returns EAGAIN if there is nothing, a loop
	// can read it.
	Bytes  io.Reader
	Reg    *Registration // nil if no loop reads it
	To     Consumer
	Buffer int // how much a goroutine reads at first, bytes

	failed error       // what ended the reading in the loop
	left   atomic.Bool // see Leave
}

// ErrLeft is why a Reader has ended whose connection goes on.
var ErrLeft = errors.New("nothing is read here any more")

// Start lets the loop read, or a goroutine, which ends when the connection does. h is the Handler of
// Reg, if there is one.
func (r *Reader) Start(h Handler) {
	r.Reg.Unseen() // of what came with the login, TLS can hold the rest
	if !r.Reg.Park() {
		go h.Resume() // its owner's; it ends or parks again
	}
}

// Failed is the error that has ended the reading in the loop, or nil. Resume calls it.
func (r *Reader) Failed() error { return r.failed }

// Close ends the connection. It can be called from any goroutine.
func (r *Reader) Close() {
	r.Conn.Close()
	r.Reg.Wake()
}

// Leave ends the Reader, to which nothing is due, but not the connection.
func (r *Reader) Leave() {
	r.left.Store(true)
	r.Conn.SetReadDeadline(time.Unix(1, 0))
	r.Reg.Wake()
}

// Ready reads what has arrived.
func (r *Reader) Ready(it *Iteration, _ bool) Next {
	buf := it.Buffer(loopBuffer)
	n, err := r.Bytes.(interface{ TryRead([]byte) (int, error) }).TryRead(buf)
	if err == syscall.EAGAIN {
		return Stay
	}
	if n > 0 {
		r.failed = r.To.Consume(buf[:n], it)
	}
	if r.failed == nil {
		r.failed = err
	}
	switch {
	case r.failed != nil, r.To.MustWait():
		return Leave
	case n == len(buf):
		return Again
	}
	return Stay
}

// Run reads until the connection ends, and returns why. It is nil once the connection is parked, and
// belongs to the loop.
func (r *Reader) Run() error {
	loopguard.MayWait()
	if r.failed == nil {
		r.To.Wait()
	}
	for buf := make([]byte, r.Buffer); r.failed == nil; {
		if r.left.Load() {
			return ErrLeft
		}
		n, err := r.Bytes.Read(buf)
		if n > 0 {
			if err := r.To.Consume(buf[:n], nil); err != nil {
				return err
			}
			r.To.Wait()
		}
		switch {
		case n == 0 && r.left.Load() && errors.Is(err, os.ErrDeadlineExceeded):
			return ErrLeft
		case err != nil:
			return err
		case n < len(buf) && !r.To.MustWait():
			if r.Reg.Park() {
				return nil
			}
			r.To.Wait() // Park may have handled what came meanwhile
		case n == len(buf) && n < maxBuffer:
			buf = make([]byte, 2*n)
		}
	}
	return r.failed
}
