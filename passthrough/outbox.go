package passthrough

import (
	"net"
	"sync"

	"lockproxy/internal/socket"
)

// outbox is what one client is given, in order. Some who give may wait for the client, since they serve nobody else: they begin
// and deliver. Others, whom many clients share, may not: they send, and what the client doesn't take at once is kept in a spool, which
// a goroutine of the outbox empties. Its methods may be called from any goroutine; the caller sees to the order.
type outbox struct {
	conn   net.Conn
	direct *socket.Socket // of conn; nil if what conn is given isn't what the kernel is, as with TLS

	mu      sync.Mutex
	room    *sync.Cond
	busy    bool  // guarded by mu; somebody writes to conn, who goes on with what is queued
	queue   spool // guarded by mu
	failed  error // guarded by mu; why nothing can be given to the client any more
	closing bool  // guarded by mu; close conn when nothing is queued

	sent     func(n int) // counts what was written to direct; nil if nobody does
	draining sync.WaitGroup
}

func newOutbox(conn net.Conn, direct *socket.Socket) *outbox {
	o := &outbox{conn: conn, direct: direct}
	o.room = sync.NewCond(&o.mu)
	if counter, ok := conn.(interface{ Sent(n int) }); ok {
		o.sent = counter.Sent
	}
	return o
}

// send gives pieces to the client without ever waiting for it.
func (o *outbox) send(pieces ...[]byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, piece := range pieces {
		if !o.busy && o.failed == nil && o.direct != nil {
			piece = o.writeNowLocked(piece)
		}
		o.queueLocked(piece)
	}
	if !o.busy && o.queue.len() > 0 {
		o.busy = true
		o.draining.Add(1)
		go func() { // ends when the queue is empty, or the client has closed or been closed; wait waits for it
			defer o.draining.Done()
			o.drain()
		}()
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

// begin says that pieces come next. If it returns true the caller must deliver them; else they have been copied.
func (o *outbox) begin(pieces ...[]byte) (deliver bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.busy {
		o.busy = true
		return true
	}
	for _, piece := range pieces {
		o.queueLocked(piece)
	}
	return false
}

// deliver gives the client pieces, and what has been queued behind them meanwhile. It waits for the client.
func (o *outbox) deliver(pieces ...[]byte) error {
	for _, piece := range pieces {
		if err := o.write(piece); err != nil {
			o.mu.Lock()
			o.failLocked(err)
			o.mu.Unlock()
			break
		}
	}
	o.drain()
	return o.err()
}

// write gives the client all of b, for the one who is busy with that.
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
	defer o.mu.Unlock()
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
	if o.closing {
		o.conn.Close()
	}
}

// err is why nothing can be given to the client any more, or nil.
func (o *outbox) err() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.failed
}

// waitBelow returns when at most limit bytes are queued, or none will be taken any more. It reports how many there were.
func (o *outbox) waitBelow(limit int64) (found int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	found = o.queue.len()
	for o.queue.len() > limit && o.failed == nil {
		o.room.Wait()
	}
	return found
}

// backlogged reports whether the client has left so much unread that its session should wait.
func (o *outbox) backlogged() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.queue.len() > maxBacklog
}

// finish closes the client as soon as it has been given all.
func (o *outbox) finish() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closing = true
	if !o.busy {
		o.conn.Close()
	}
}

// wait returns when no goroutine of the outbox runs.
func (o *outbox) wait() { o.draining.Wait() }
