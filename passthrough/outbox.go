package passthrough

import (
	"net"
	"sync"

	"lockproxy/internal/socket"
)

// outbox is what one client is given, in order. Nobody who gives waits for the client: what it
// doesn't take at once is kept in a spool, which a goroutine of the outbox empties. Whoever reads
// for one client alone waits with waitBelow before it reads more. Its methods may be called from
// any goroutine; the caller sees to the order.
type outbox struct {
	conn   net.Conn
	direct *socket.Socket // of conn; nil if what conn is given isn't what the kernel is, as with TLS

	mu      sync.Mutex
	room    *sync.Cond
	busy    bool   // guarded by mu; what is given now is queued: a goroutine empties the queue
	queue   spool  // guarded by mu
	given   uint64 // guarded by mu; bytes, so far
	hurries int    // guarded by mu; see hurry
	failed  error  // guarded by mu; why nothing can be given to the client any more
	closing bool   // guarded by mu; close conn when nothing is queued

	sent     func(n int) // counts what was written to direct; nil if nobody does
	cork     func()      // has what is written next leave with the end of conn; nil if that can't be
	draining sync.WaitGroup
}

func newOutbox(conn net.Conn, direct *socket.Socket) *outbox {
	o := &outbox{conn: conn, direct: direct}
	o.room = sync.NewCond(&o.mu)
	if counter, ok := conn.(interface{ Sent(n int) }); ok {
		o.sent = counter.Sent
	}
	if corker, ok := conn.(interface{ Cork() }); ok {
		o.cork = corker.Cork
	}
	return o
}

// send gives pieces to the client without ever waiting for it.
func (o *outbox) send(pieces ...[]byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sendLocked(pieces)
}

// finish gives the client the last pieces, and closes it as soon as it has been given all.
func (o *outbox) finish(last ...[]byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closing && o.cork != nil && len(last) > 0 {
		o.cork()
	}
	o.closing = true
	o.sendLocked(last)
}

func (o *outbox) sendLocked(pieces [][]byte) {
	for _, piece := range pieces {
		o.given += uint64(len(piece))
		if !o.busy && o.queue.len() == 0 && o.failed == nil && o.direct != nil {
			piece = o.writeNowLocked(piece)
		}
		o.queueLocked(piece)
	}
	o.startLocked()
}

// startLocked sees to what is queued, and to the end. mu is held.
func (o *outbox) startLocked() {
	switch {
	case o.busy:
	case o.queue.len() > 0, o.closing && o.direct == nil: // to close may have to wait for the client too
		o.busy = true
		o.draining.Add(1)
		go func() { // ends when the queue is empty, or the client has closed or been closed; wait waits for it
			defer o.draining.Done()
			o.drain()
		}()
	case o.closing:
		o.conn.Close()
	}
}

// writeNowLocked gives the kernel as much of b as it takes now, and returns the rest. mu is held.
func (o *outbox) writeNowLocked(b []byte) (rest []byte) {
	for len(b) > 0 {
		n, err := o.direct.TryWrite(b)
		if err != nil {
			o.failLocked(err)
			return nil
		}
		if n == 0 {
			return b
		}
		b = b[n:]
		if o.sent != nil {
			o.sent(n)
		}
	}
	return nil
}

func (o *outbox) queueLocked(b []byte) {
	if len(b) == 0 || o.failed != nil {
		return
	}
	if err := o.queue.append(b); err != nil {
		o.failLocked(err)
		o.conn.Close() // it can't be given the rest
		if all := o.queue.all; all != nil && all.Dropped != nil {
			all.Dropped(o.conn.RemoteAddr(), err)
		}
	}
}

func (o *outbox) failLocked(err error) {
	if o.failed == nil {
		o.failed = err
	}
	o.queue.clear()
	o.room.Broadcast()
}

// write gives the client all of b, for drain.
func (o *outbox) write(b []byte) error {
	if o.direct != nil && len(b) > 0 {
		n, err := o.direct.TryWrite(b)
		if err != nil {
			return err
		}
		if o.sent != nil {
			o.sent(n)
		}
		b = b[n:]
	}
	if len(b) == 0 {
		return nil
	}
	_, err := o.conn.Write(b) // waits; conn counts what it is given
	return err
}

// drain empties the queue and gives up being the one who writes.
func (o *outbox) drain() {
	var buf []byte
	o.mu.Lock()
	for o.failed == nil && o.queue.len() > 0 {
		if buf == nil && o.queue.file != nil {
			buf = make([]byte, spoolMemory)
		}
		piece, err := o.queue.take(buf)
		o.mu.Unlock()
		if err == nil {
			err = o.write(piece)
		}
		o.mu.Lock()
		if err != nil {
			o.failLocked(err)
		}
		o.room.Broadcast()
	}
	o.busy = false
	closing := o.closing
	o.mu.Unlock()
	if closing {
		o.conn.Close()
	}
}

// status tells whether whoever reads for this client alone should wait for it, how many bytes it
// has been given so far, though it may not have taken them, and why it can't be given more; nil if
// it can.
func (o *outbox) status() (unread bool, given uint64, failed error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.queue.len() > 0 && o.hurries == 0, o.given, o.failed
}

// err is why nothing can be given to the client any more, or nil.
func (o *outbox) err() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.failed
}

// waitBelow returns when at most limit bytes are queued, or none will be taken any more, or there
// is a hurry.
func (o *outbox) waitBelow(limit int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.queue.len() > limit && o.failed == nil && o.hurries == 0 {
		o.room.Wait()
	}
}

// hurry says that one more, or one less, waits for something that the upstream says or takes only
// when what it says before that has been read: whoever reads it must not wait for the client
// meanwhile.
func (o *outbox) hurry(by int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.hurries += by
	o.room.Broadcast()
}

// backlogged reports whether the client leaves much unread.
func (o *outbox) backlogged() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.queue.len() > maxBacklog
}

// unread reports whether whoever reads for this client alone should wait for it: see waitBelow.
func (o *outbox) unread() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.queue.len() > 0 && o.hurries == 0
}

// wait returns when no goroutine of the outbox runs.
func (o *outbox) wait() { o.draining.Wait() }
