package passthrough

import (
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"lockproxy/internal/eventloop"
	"lockproxy/internal/loopguard"
	"lockproxy/internal/socket"
	"lockproxy/internal/upstream"
)

const (
	// minBuf and bufSize are the least and the most that a goroutine reads at once, bytes.
	minBuf  = 1 << 10
	bufSize = 64 << 10
	// loopBuf is how much the event loop reads at once, bytes: a reply of 64 KB and some more.
	loopBuf = 72 << 10
)

var errClosedByUpstream = errors.New("closed by the upstream")

// connReader reads one upstream connection for a home or a lane. The event loop reads it while
// nothing has to be waited for, otherwise a goroutine does.
type connReader struct {
	conn    net.Conn
	rw      io.ReadWriter           // conn's bytes
	atOnce  nonWaiting              // rw; nil with TLS: see writesAtOnce
	reg     *eventloop.Registration // nil if no loop reads conn
	to      consumer
	buf     int           // how much a goroutine reads at first, bytes
	ended   chan struct{} // closed when nothing reads any more, and the consumer knows
	replies demux
	failed  error       // what ended the reading in the loop
	leaves  atomic.Bool // see leave
}

// nonWaiting is read and written as far as that needs no waiting: a socket, or a whole cluster.
type nonWaiting interface {
	TryRead(b []byte) (n int, err error) // EAGAIN if there is nothing
	TryWrite(b []byte) (n int, err error)
}

// consumer is what a connReader reads for.
type consumer interface {
	// consume handles what was read, in the iteration it, which is nil for a goroutine. An error
	// ends the connection.
	consume(data []byte, it *eventloop.Iteration) error
	mustWait() bool      // whether wait would not return at once
	wait()               // returns when more should be read
	connEnded(err error) // is called once; it can wait
}

// init makes a connReader of conn. A goroutine reads buf bytes at first.
func (r *connReader) init(conn net.Conn, to consumer, buf int, loops *eventloop.Loops) {
	r.conn, r.rw, r.to, r.buf = conn, upstream.Raw(conn), to, buf
	r.ended = make(chan struct{})
	r.atOnce, _ = r.rw.(nonWaiting)
	switch rw := r.atOnce.(type) {
	case *socket.Socket:
		r.reg = loops.NewRegistration(r, rw.Raw())
	case interface {
		NotifyReader(func(*eventloop.Iteration))
	}:
		if r.reg = loops.NewRegistration(r, nil); r.reg != nil {
			rw.NotifyReader(r.reg.Notify)
		}
	}
}

// writesAtOnce reports whether the connection can be written without waiting, as event loops must.
func (r *connReader) writesAtOnce() bool { return r.atOnce != nil }

// tryWrite writes as much of b as needs no waiting: nothing if writesAtOnce says so.
func (r *connReader) tryWrite(b []byte) (n int, err error) {
	if !r.writesAtOnce() {
		return 0, nil
	}
	return r.atOnce.TryWrite(b)
}

// writeFailed ends the connection after a write that has failed. If Redis has closed it, what it said
// before is still read, such as why: a Unix socket fails at the first write after that.
func (r *connReader) writeFailed(err error) {
	if !errors.Is(err, syscall.EPIPE) {
		r.close()
	}
}

// start makes the event loop read, or a goroutine, which ends when the connection does.
func (r *connReader) start() {
	if !r.reg.Park() {
		go r.Resume()
	}
}

// close ends the connection. It can be called from any goroutine.
func (r *connReader) close() {
	r.conn.Close()
	r.reg.Wake()
}

// errLeft is why a reader ended whose connection goes on.
var errLeft = errors.New("nothing is read here any more")

// leave ends the reader, to which nothing is due, but not the connection.
func (r *connReader) leave() {
	r.leaves.Store(true)
	r.conn.SetReadDeadline(time.Unix(1, 0))
	r.reg.Wake()
}

// Resume reads until the connection ends or the event loop can read it again.
func (r *connReader) Resume() {
	err := r.failed
	if err == nil {
		if err = r.read(); err == nil {
			return // it is parked, and belongs to the loop
		}
	}
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) { // the latter after a failed write
		err = errClosedByUpstream
	}
	r.reg.Unregister()
	if err == errLeft {
		r.conn.SetReadDeadline(time.Time{})
	} else {
		upstream.CloseAndWait(r.conn)
	}
	r.to.connEnded(err)
}

// read returns why the connection ended, or nil once it is parked.
func (r *connReader) read() error {
	loopguard.MayWait()
	r.to.wait()
	for buf := make([]byte, r.buf); ; {
		if r.leaves.Load() {
			return errLeft
		}
		n, err := r.rw.Read(buf)
		if n > 0 {
			if err := r.to.consume(buf[:n], nil); err != nil {
				return err
			}
			r.to.wait()
		}
		if n == 0 && r.leaves.Load() && errors.Is(err, os.ErrDeadlineExceeded) {
			return errLeft
		}
		if err != nil {
			return err
		}
		if n < len(buf) && !r.replies.large() {
			if r.reg.Park() {
				return nil
			}
			r.to.wait() // Park may have handled what came meanwhile
		}
		if r.failed != nil {
			return r.failed
		}
		if n == len(buf) && n < bufSize {
			buf = make([]byte, 2*n)
		}
	}
}

// Ready reads what has arrived.
func (r *connReader) Ready(it *eventloop.Iteration, _ bool) eventloop.Next {
	buf := it.Buffer(loopBuf)
	n, err := r.atOnce.TryRead(buf)
	switch {
	case err == syscall.EAGAIN:
		return eventloop.Stay
	case err != nil:
		r.failed = err
	default:
		r.failed = r.to.consume(buf[:n], it)
	}
	switch {
	case r.failed != nil, r.replies.large(), r.to.mustWait():
		return eventloop.Leave
	case n == len(buf):
		return eventloop.Again
	}
	return eventloop.Stay
}
