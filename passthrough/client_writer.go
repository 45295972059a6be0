package passthrough

import (
	"net"
	"sync"
	"sync/atomic"

	"lockproxy/internal/loopguard"
	"lockproxy/internal/socket"
)

// clientWriter writes to one client. send never waits, neither for the client nor for a file: what
// the client does not take at once is kept in an overflow. One goroutine empties that, and another
// moves to its file what is too much for memory. A home calls waitBelow before it reads more. The
// methods can be called from any goroutine. Pieces go in the order of the calls.
type clientWriter struct {
	conn   net.Conn
	socket *socket.Socket // conn's; nil if it has none

	mu       sync.Mutex
	room     *sync.Cond
	drains   bool     // guarded by mu; a goroutine empties the queue: pieces must queue
	spills   bool     // guarded by mu; a goroutine moves what is in the queue to its file
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
	w := &clientWriter{conn: conn, socket: direct, queue: overflow{all: all, openFile: unnamedFile},
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

// send gives pieces to the client, unless it has been finished. It never waits.
func (w *clientWriter) send(pieces ...[]byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closing {
		w.sendLocked(pieces)
	}
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
		if len(piece) == 0 || w.err != nil {
			continue
		}
		if err := w.queue.append(piece); err != nil {
			w.dropLocked(err)
		}
	}
	w.startLocked()
}

// startLocked starts to spill and to drain the queue, or closes conn. mu is held.
func (w *clientWriter) startLocked() {
	if len(w.queue.tail) > 0 && !w.spills {
		w.spills = true
		// Ends when nothing is left to spill; wait waits for it.
		w.draining.Go(w.spill)
	}
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

// dropLocked closes the client, for which there is no more room. mu is held.
func (w *clientWriter) dropLocked(err error) {
	w.failLocked(err)
	w.conn.Close() // the rest is lost
	w.queue.all.dropped(w.conn.RemoteAddr(), err)
}

func (w *clientWriter) failLocked(err error) {
	if w.err == nil {
		w.err = err
	}
	if file := w.queue.clear(); file != nil {
		w.draining.Go(func() { file.Close() }) // wait waits for it
	}
	w.room.Broadcast()
}

// drain empties the queue.
func (w *clientWriter) drain() {
	loopguard.MayWait()
	var buf []byte
	w.mu.Lock()
	for w.err == nil && w.queue.len() > 0 {
		piece, from := w.queue.next()
		switch {
		case from != nil:
			if buf == nil {
				buf = make([]byte, overflowMemory)
			}
			piece = w.readFile(from, buf)
		case piece == nil:
			w.room.Wait() // for the end of a spill
		}
		if len(piece) == 0 {
			continue
		}
		w.mu.Unlock()
		_, err := w.conn.Write(piece) // waits; conn counts what is written to it
		w.mu.Lock()
		w.queue.written()
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

// readFile takes some bytes from the queue's file. mu is held, but not while it reads.
func (w *clientWriter) readFile(from *fileRead, buf []byte) (piece []byte) {
	loopguard.MayWait()
	w.mu.Unlock()
	n, err := from.file.ReadAt(buf[:min(int64(len(buf)), from.n)], from.at)
	w.mu.Lock()
	switch {
	case w.err != nil:
	case n == 0:
		w.failLocked(err)
	default:
		if unused := w.queue.hasRead(n); unused != nil {
			w.mu.Unlock()
			unused.Close()
			w.mu.Lock()
		}
		return buf[:n]
	}
	return nil
}

// spill moves to the queue's file what is too much for memory.
func (w *clientWriter) spill() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for job, due := w.queue.beginSpill(); due; job, due = w.queue.beginSpill() {
		w.mu.Unlock()
		job.write()
		w.mu.Lock()
		if err := w.queue.endSpill(job); err != nil {
			w.dropLocked(err)
		}
		w.room.Broadcast()
	}
	w.spills = false
}

// status returns whether a home should stop reading for now, how many bytes the client has been
// sent (read or not), and why nothing more can be written, or nil.
func (w *clientWriter) status() (unread bool, given uint64, failed error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.queue.len() > 0 && !w.readsOnLocked(), w.accepted, w.err
}

// waitBelow returns when at most limit bytes are queued, or nothing can be written any more, or
// addMustRead says so.
func (w *clientWriter) waitBelow(limit int64) {
	loopguard.MayWait()
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.queue.len() > limit && w.err == nil && !w.readsOnLocked() {
		w.room.Wait()
	}
}

// maxSpill is how much of what a home has read can be on its way to a file, bytes.
const maxSpill = 1 << 20

// readsOnLocked reports whether a home reads more though the client leaves replies unread. It waits
// for the file, if that is slow. mu is held.
func (w *clientWriter) readsOnLocked() bool {
	return w.mustRead > 0 && w.queue.unspilled() <= maxSpill
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

// settle returns when nothing is queued, or can be written any more, or when it is over and woken.
func (w *clientWriter) settle(over *atomic.Bool) {
	loopguard.MayWait()
	w.mu.Lock()
	defer w.mu.Unlock()
	for !over.Load() && w.queue.len() > 0 && w.err == nil {
		w.room.Wait()
	}
}

func (w *clientWriter) wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.room.Broadcast()
}

// wait returns when no goroutine of the clientWriter runs.
func (w *clientWriter) wait() {
	loopguard.MayWait()
	w.draining.Wait()
}
