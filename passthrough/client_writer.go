package passthrough

import (
	"net"
	"sync"

	"lockproxy/internal/socket"
)

// clientWriter writes to one client. send never waits: what the client does not take at once is
// kept in an overflow, which a goroutine empties. A home calls waitBelow before it reads more. The
// methods can be called from any goroutine. Pieces go in the order of the calls.
type clientWriter struct {
	conn   net.Conn
	socket *socket.Socket // conn's; nil if the bytes on it differ, as with TLS

	mu       sync.Mutex
	room     *sync.Cond
	drains   bool     // guarded by mu; a goroutine empties the queue: pieces must queue
	queue    overflow // guarded by mu
	accepted uint64   // guarded by mu; bytes in all calls of send
	mustRead int      // guarded by mu; see addMustRead
	err      error    // guarded by mu; why nothing can be written any more
	closing  bool     // guarded by mu; close conn when nothing is queued

	onWritten func(n int) // counts bytes written to socket
	cork      func()      // makes the next write leave in one packet with the end of conn
	draining  sync.WaitGroup
}

func newClientWriter(conn net.Conn, direct *socket.Socket, all *unreadTotal) *clientWriter {
	w := &clientWriter{conn: conn, socket: direct, queue: overflow{all: all},
		onWritten: func(int) {}, cork: func() {}}
	w.room = sync.NewCond(&w.mu)
	if counter, ok := conn.(interface{ Sent(n int) }); ok {
		w.onWritten = counter.Sent
	}
	if corker, ok := conn.(interface{ Cork() }); ok {
		w.cork = corker.Cork
	}
	return w
}

// send gives pieces to the client. It never waits.
func (w *clientWriter) send(pieces ...[]byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sendLocked(pieces)
}

// finish gives the client the last pieces, and closes it when all are written.
func (w *clientWriter) finish(last ...[]byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closing && len(last) > 0 {
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

// startLocked starts to drain the queue, or closes conn. mu is held.
func (w *clientWriter) startLocked() {
	switch {
	case w.drains:
	case w.queue.len() > 0, w.closing && w.socket == nil: // Close can wait for the client too
		w.drains = true
		// Ends when the queue is empty, or the client has closed or been closed; wait waits for it.
		w.draining.Go(w.drain)
	case w.closing:
		w.conn.Close()
	}
}

// writeNowLocked writes as much of b as the kernel takes at once, and returns the rest. mu is held.
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
		w.onWritten(n)
	}
	return nil
}

func (w *clientWriter) queueLocked(b []byte) {
	if len(b) == 0 || w.err != nil {
		return
	}
	if err := w.queue.append(b); err != nil {
		w.failLocked(err)
		w.conn.Close() // the rest is lost
		w.queue.all.dropped(w.conn.RemoteAddr(), err)
	}
}

func (w *clientWriter) failLocked(err error) {
	if w.err == nil {
		w.err = err
	}
	w.queue.clear()
	w.room.Broadcast()
}

// write writes all of b, for drain. It waits.
func (w *clientWriter) write(b []byte) error {
	if w.socket != nil && len(b) > 0 {
		n, err := w.socket.TryWrite(b)
		if err != nil {
			return err
		}
		w.onWritten(n)
		b = b[n:]
	}
	if len(b) == 0 {
		return nil
	}
	_, err := w.conn.Write(b) // waits; conn counts what is written to it
	return err
}

// drain empties the queue.
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

// status returns whether a home should stop reading for now, how many bytes the client has been
// sent (read or not), and why nothing more can be written, or nil.
func (w *clientWriter) status() (unread bool, given uint64, failed error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.queue.len() > 0 && w.mustRead == 0, w.accepted, w.err
}

// waitBelow returns when at most limit bytes are queued, or nothing can be written any more, or
// addMustRead says so.
func (w *clientWriter) waitBelow(limit int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.queue.len() > limit && w.err == nil && w.mustRead == 0 {
		w.room.Wait()
	}
}

// addMustRead(1) says that a home's reader must not wait for the client, until addMustRead(-1). The
// session then waits for something that Redis does only after its earlier replies are read.
func (w *clientWriter) addMustRead(by int) {
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
