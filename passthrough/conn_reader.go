package passthrough

import (
	"errors"
	"io"
	"net"
	"syscall"
	"time"

	"lockproxy/internal/eventloop"
	"lockproxy/internal/socket"
	"lockproxy/internal/upstream"
)

const (
	// minBuf is the least that a goroutine reads at once, bytes.
	minBuf = 1 << 10
	// bufSize is how large a request or what is gathered for a home is before it is sent at once,
	// bytes.
	bufSize = 64 << 10
	// loopBuf is about the most that is read at once, bytes: a reply of 64 KB and some more.
	loopBuf = 72 << 10
)

var errClosedByUpstream = errors.New("closed by the upstream")

// connReader reads one upstream connection for a home or a lane, and writes it as far as that needs
// no waiting.
type connReader struct {
	eventloop.Reader
	rw      io.ReadWriter // the connection's bytes
	atOnce  nonWaiting    // rw; nil if that can only wait: see writesAtOnce
	to      consumer
	ended   chan struct{} // closed when nothing reads any more, and the consumer knows
	replies demux
}

// nonWaiting is read and written as far as that needs no waiting: a socket, or a whole cluster.
type nonWaiting interface {
	TryRead(b []byte) (n int, err error) // EAGAIN if there is nothing
	TryWrite(b []byte) (n int, err error)
}

// consumer is what a connReader reads for.
type consumer interface {
	eventloop.Consumer
	connEnded(err error) // is called once; it can wait
}

// telling tells those whose answers a consumer has got, once it has done so.
type telling struct {
	consumer
	replies *demux
}

func (t telling) Consume(data []byte, it *eventloop.Iteration) error {
	err := t.consumer.Consume(data, it)
	t.replies.tellWaiters(it)
	return err
}

// init makes a connReader of conn. A goroutine reads buf bytes at first.
func (r *connReader) init(conn net.Conn, to consumer, buf int, loops *eventloop.Loops) {
	r.rw, r.to, r.ended = upstream.Raw(conn), to, make(chan struct{})
	r.Conn, r.Bytes, r.To, r.Buffer = conn, r.rw, telling{to, &r.replies}, buf
	r.atOnce, _ = r.rw.(nonWaiting)
	switch rw := r.atOnce.(type) {
	case *socket.Socket:
		r.Reg = loops.NewRegistration(r, rw.Raw())
	case interface {
		NotifyReader(func(*eventloop.Iteration))
	}:
		if r.Reg = loops.NewRegistration(r, nil); r.Reg != nil {
			rw.NotifyReader(r.Reg.Notify)
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

// writeIdle writes a request where nothing was sent that has not been answered: it finds room.
func (r *connReader) writeIdle(raw []byte) {
	n, err := r.tryWrite(raw)
	if !r.writesAtOnce() {
		n, err = r.rw.Write(raw)
	}
	if err != nil || n < len(raw) {
		r.Close() // the reader reports the loss
	}
}

// writeFailed ends the connection after a write that has failed. If Redis has closed it, what it said
// before is still read, such as why: a Unix socket fails at the first write after that.
func (r *connReader) writeFailed(err error) {
	if !errors.Is(err, syscall.EPIPE) {
		r.Close()
	}
}

// start lets the event loop read, or a goroutine.
func (r *connReader) start() { r.Start(r) }

// Resume reads until the connection ends or the event loop can read it again.
func (r *connReader) Resume() {
	err := r.Run()
	if err == nil {
		return // it is parked, and belongs to the loop
	}
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) { // the latter after a failed write
		err = errClosedByUpstream
	}
	r.Reg.Unregister()
	if err == eventloop.ErrLeft {
		r.Conn.SetReadDeadline(time.Time{})
	} else {
		upstream.CloseAndWait(r.Conn)
	}
	r.to.connEnded(err)
}
