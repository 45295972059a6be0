package passthrough

import (
	"net"
	"sync"

	"lockproxy/internal/socket"
)

// clientWriter is what one client is given, in order. Nobody who gives waits for the client: what it
// doesn't take at once is kept in a overflow, which a goroutine of the clientWriter empties. Whoever reads
// for one client alone waits with waitBelow before it reads more. Its methods may be called from
// any goroutine; the caller sees to the order.
type clientWriter struct {
	conn   net.Conn
	socket *socket.Socket // of conn; nil if what conn is given isn't what the kernel is, as with TLS

	mu       sync.Mutex
	room     *sync.Cond
	drains   bool     // guarded by mu; what is given now is queued: a goroutine empties the queue
	queue    overflow // guarded by mu
	accepted uint64   // guarded by mu; bytes, so far
	mustRead int      // guarded by mu; see hurry
	err      error    // guarded by mu; why nothing can be given to the client any more
	closing  bool     // guarded by mu; close conn when nothing is queued

	onWritten func(n int) // counts what was written to direct; nil if nobody does
	cork      func()      // has what is written next leave with the end of conn; nil if that can't be
	draining  sync.WaitGroup
}

func newClientWriter(conn net.Conn, direct *socket.Socket) *clientWriter {
	o := &clientWriter{conn: conn, socket: direct}
	o.room = sync.NewCond(&o.mu)
	if counter, ok := conn.(interface{ Sent(n int) }); ok {
		o.onWritten = counter.Sent
	}
	if corker, ok := conn.(interface{ Cork() }); ok {
		o.cork = corker.Cork
	}
	return o
}

// send gives pieces to the client without ever waiting for it.
func (w *clientWriter) send(pieces ...[]byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sendLocked(pieces)
}

// finish gives the client the last pieces, and closes it as soon as it has been given all.
func (w *clientWriter) finish(last ...[]byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closing && w.cork != nil && len(last) > 0 {
		w.cork()
	}
	w.closing = true
	w.sendLocked(last)
}

func (w *clientWriter) sendLocked(pieces [][]byte) {
	for _, piece := range pieces {
		w.accepted += uint64(len(piece))
		if !w.drains && w.queue.len() == 0 && w.err == nil && w.socket != nil {
			piece = w.writeNowLocked(piece)
		}
		w.queueLocked(piece)
	}
	w.startLocked()
}

// startLocked sees to what is queued, and to the end. mu is held.
func (w *clientWriter) startLocked() {
	switch {
	case w.drains:
	case w.queue.len() > 0, w.closing && w.socket == nil: // to close may have to wait for the client too
		w.drains = true
		w.draining.Add(1)
		go func() { // ends when the queue is empty, or the client has closed or been closed; wait waits for it
			defer w.draining.Done()
			w.drain()
		}()
	case w.closing:
		w.conn.Close()
	}
}

// writeNowLocked gives the kernel as much of b as it takes now, and returns the rest. mu is held.
func (w *clientWriter) writeNowLocked(b []byte) (rest []byte) {
	for len(b) > 0 {
		n, err := w.socket.TryWrite(b)
		if err != nil {
			w.failLocked(err)
			return nil
		}
		if n == 0 {
			return b
		}
		b = b[n:]
		if w.onWritten != nil {
			w.onWritten(n)
		}
	}
	return nil
}

func (w *clientWriter) queueLocked(b []byte) {
	if len(b) == 0 || w.err != nil {
		return
	}
	if err := w.queue.append(b); err != nil {
		w.failLocked(err)
		w.conn.Close() // it can't be given the rest
		if all := w.queue.all; all != nil && all.dropped != nil {
			all.dropped(w.conn.RemoteAddr(), err)
		}
	}
}

func (w *clientWriter) failLocked(err error) {
	if w.err == nil {
		w.err = err
	}
	w.queue.clear()
	w.room.Broadcast()
}

// write gives the client all of b, for drain.
func (w *clientWriter) write(b []byte) error {
	if w.socket != nil && len(b) > 0 {
		n, err := w.socket.TryWrite(b)
		if err != nil {
			return err
		}
		if w.onWritten != nil {
			w.onWritten(n)
		}
		b = b[n:]
	}
	if len(b) == 0 {
		return nil
	}
	_, err := w.conn.Write(b) // waits; conn counts what it is given
	return err
}

// drain empties the queue and gives up being the one who writes.
func (w *clientWriter) drain() {
	var buf []byte
	w.mu.Lock()
	for w.err == nil && w.queue.len() > 0 {
		if buf == nil && w.queue.file != nil {
			buf = make([]byte, overflowMemory)
		}
		piece, err := w.queue.next(buf)
		w.mu.Unlock()
		if err == nil {
			err = w.write(piece)
		}
		w.mu.Lock()
		if err != nil {
			w.failLocked(err)
		}
		w.room.Broadcast()
	}
	w.drains = false
	closing := w.closing
	w.mu.Unlock()
	if closing {
		w.conn.Close()
	}
}

// status tells whether whoever reads for this client alone should wait for it, how many bytes it
// has been given so far, though it may not have taken them, and why it can't be given more; nil if
// it can.
func (w *clientWriter) status() (unread bool, given uint64, failed error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.queue.len() > 0 && w.mustRead == 0, w.accepted, w.err
}

// waitBelow returns when at most limit bytes are queued, or none will be taken any more, or there
// is a hurry.
func (w *clientWriter) waitBelow(limit int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.queue.len() > limit && w.err == nil && w.mustRead == 0 {
		w.room.Wait()
	}
}

// hurry says that one more, or one less, waits for something that the upstream says or takes only
// when what it says before that has been read: whoever reads it must not wait for the client
// meanwhile.
func (w *clientWriter) keepReading(by int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mustRead += by
	w.room.Broadcast()
}

// backlogged reports whether the client leaves much unread.
func (w *clientWriter) backlogged() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.queue.len() > maxBacklog
}

// wait returns when no goroutine of the clientWriter runs.
func (w *clientWriter) wait() { w.draining.Wait() }
