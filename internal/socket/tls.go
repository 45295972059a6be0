package socket

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// TLS is one side of a TLS connection. Once the handshake is done, its Socket reads and writes it
// without waiting, as that of a plain connection does; see New.
type TLS struct {
	*tls.Conn
	records *records
	server  bool
	unread  []byte // what Next has read, one byte at most

	writing sync.Mutex // guards what follows
	buf     *[]byte    // of pending; nil if that is empty
	pending []byte     // records that the kernel has not taken yet
	held    int        // bytes of a caller's that are in pending, and were not counted as written
}

// Client is tls.Client. cfg should have DynamicRecordSizingDisabled, as that of Server: otherwise a
// connection begins with small records, which help browsers only.
func Client(raw net.Conn, cfg *tls.Config) *TLS {
	r := newRecords(raw)
	return &TLS{Conn: tls.Client(r, cfg), records: r}
}

// Server is tls.Server. The connections that share cfg let their clients resume TLS sessions.
func Server(raw net.Conn, cfg *tls.Config) *TLS {
	r := newRecords(raw)
	return &TLS{Conn: tls.Server(r, cfg), records: r, server: true}
}

func newRecords(raw net.Conn) *records {
	return &records{Conn: raw, plain: New(raw), waits: true}
}

// Raw is the connection below.
func (t *TLS) Raw() net.Conn { return t.records.Conn }

// HandshakeContext is tls.Conn's.
func (t *TLS) HandshakeContext(ctx context.Context) error {
	err := t.Conn.HandshakeContext(ctx)
	t.records.gathers.Store(err == nil && t.records.plain != nil)
	return err
}

// Handshake is tls.Conn's.
func (t *TLS) Handshake() error { return t.HandshakeContext(context.Background()) }

// Read waits for at least a byte. It returns all that has come, as far as there is room, and with
// it the end of the connection.
func (t *TLS) Read(b []byte) (n int, err error) {
	if n = t.takeUnread(b); n == 0 {
		t.records.waits = true
		n, err = t.Conn.Read(b)
	}
	if err == nil && n < len(b) && t.records.gathers.Load() {
		var more int
		if more, err = t.tryRead(b[n:]); err == syscall.EAGAIN {
			err = nil
		}
		n += more
	}
	return n, err
}

// tryRead is Socket.TryRead.
func (t *TLS) tryRead(b []byte) (n int, err error) {
	t.records.waits, t.records.emptied = false, false
	n = t.takeUnread(b)
	for n < len(b) && err == nil {
		var k int
		k, err = t.Conn.Read(b[n:])
		n += k
	}
	switch {
	case err != errNotYet:
		return n, err
	case n > 0:
		return n, nil
	}
	return 0, syscall.EAGAIN
}

func (t *TLS) takeUnread(b []byte) (n int) {
	n = copy(b, t.unread)
	t.unread = t.unread[n:]
	return n
}

// Next returns the byte that the next call of Read begins with, without taking it. There is none if
// everything that has come was read, or if the connection has ended: open tells these apart. No
// other goroutine may be reading.
func (t *TLS) Next() (next byte, has, open bool) {
	if len(t.unread) == 0 {
		b := make([]byte, 1)
		var n int
		var err error
		if t.records.gathers.Load() {
			n, err = t.tryRead(b)
		} else {
			t.SetReadDeadline(time.Unix(1, 0)) // nothing more is read from the connection below
			n, err = t.Read(b)
			t.SetReadDeadline(time.Time{})
		}
		if n == 0 {
			return 0, false, err == syscall.EAGAIN || errors.Is(err, os.ErrDeadlineExceeded)
		}
		t.unread = b
	}
	return t.unread[0], true, true
}

// maxRecord is how much one record carries at most, bytes. The peer can read a whole record only,
// so that bytes of which the kernel has not taken the whole record have not been written.
const maxRecord = 16 << 10

// Write waits until the kernel has taken all of b.
func (t *TLS) Write(b []byte) (n int, err error) {
	if !t.records.gathers.Load() {
		return t.Conn.Write(b)
	}
	t.writing.Lock()
	defer t.writing.Unlock()
	return t.write(b, t.records.plain.Write)
}

// tryWrite is Socket.TryWrite. Of what it has not written, the next call must begin with the same
// bytes.
func (t *TLS) tryWrite(b []byte) (n int, err error) {
	t.writing.Lock()
	defer t.writing.Unlock()
	return t.write(b, t.records.plain.TryWrite)
}

// write writes b as far as the kernel takes it by write. writing is held.
func (t *TLS) write(b []byte, write func([]byte) (int, error)) (n int, err error) {
	for n < len(b) {
		if t.held == 0 {
			record := b[n:min(n+maxRecord, len(b))]
			if _, err := t.Conn.Write(record); err != nil {
				return n, err
			}
			t.held = len(record)
		}
		if done, err := t.flush(write); !done {
			return n, err
		}
		n += t.held
		t.held = 0
	}
	return n, nil
}

// flush writes the records that there are, and reports whether the kernel has taken all. writing is
// held.
func (t *TLS) flush(write func([]byte) (int, error)) (done bool, err error) {
	for {
		if len(t.pending) == 0 {
			if t.buf != nil {
				buffers.Put(t.buf)
			}
			if t.buf = t.records.take(); t.buf == nil {
				return true, nil
			}
			t.pending = *t.buf
		}
		k, err := write(t.pending)
		t.pending = t.pending[k:]
		if err != nil || len(t.pending) > 0 {
			return false, err
		}
	}
}

var errWritten = errors.New("the bytes that were written before have not left yet")

// CloseWrite tells the peer that nothing more will be written. It does not wait, and fails if there
// is no room for the message.
func (t *TLS) CloseWrite() error {
	if !t.records.gathers.Load() {
		return t.Conn.CloseWrite()
	}
	if !t.writing.TryLock() {
		return errWritten
	}
	defer t.writing.Unlock()
	if err := t.Conn.CloseWrite(); err != nil {
		return err
	}
	done, err := t.flush(t.records.plain.TryWrite)
	if err == nil && !done {
		err = errWritten
	}
	return err
}

// Close closes the connection. It does not wait, but for the server's side of one that has no
// Socket: tls.Conn's Close waits up to five seconds for room for its last message.
func (t *TLS) Close() error {
	switch {
	case t.records.gathers.Load():
		t.CloseWrite()
	case t.server:
		return t.Conn.Close()
	}
	return t.records.Conn.Close()
}

// SetDeadline, SetReadDeadline and SetWriteDeadline are those of the connection below.

func (t *TLS) SetDeadline(at time.Time) error      { return t.records.Conn.SetDeadline(at) }
func (t *TLS) SetReadDeadline(at time.Time) error  { return t.records.Conn.SetReadDeadline(at) }
func (t *TLS) SetWriteDeadline(at time.Time) error { return t.records.Conn.SetWriteDeadline(at) }

// records is where a tls.Conn reads and writes its records: directly during the handshake. After
// that it gathers what is written, for the one who writes, if the connection is a socket. Bytes
// that the tls.Conn writes by itself when it reads, which is rare, wait for the next write. They
// fill one record at most: a peer to which nothing else is written can ask for any number of new
// keys.
type records struct {
	net.Conn
	plain   *Socket // Conn's; nil if it has none
	gathers atomic.Bool

	// Of the reader.
	waits   bool // for something to read
	emptied bool // the last read has left nothing

	mu  sync.Mutex
	out *[]byte // guarded by mu; nil if nothing was written
}

// errNotYet says that there is nothing to read. A tls.Conn can be read again after it.
var errNotYet net.Error = notYet{}

type notYet struct{}

func (notYet) Error() string   { return "nothing has arrived yet" }
func (notYet) Timeout() bool   { return true }
func (notYet) Temporary() bool { return true }

func (r *records) Read(b []byte) (n int, err error) {
	switch {
	case r.waits:
		return r.Conn.Read(b)
	case r.emptied:
		return 0, errNotYet
	}
	n, err = r.plain.TryRead(b)
	r.emptied = n < len(b)
	if err == syscall.EAGAIN {
		err = errNotYet
	}
	return n, err
}

// errUnsent makes a tls.Conn fail at its next write.
var errUnsent = errors.New("the peer has asked for too many new keys")

// buffers are for records.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, maxRecord+512); return &b }}

func (r *records) Write(b []byte) (n int, err error) {
	if !r.gathers.Load() {
		return r.Conn.Write(b)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.out == nil {
		r.out = buffers.Get().(*[]byte)
		*r.out = (*r.out)[:0]
	}
	if len(*r.out) > maxRecord {
		return 0, errUnsent
	}
	*r.out = append(*r.out, b...)
	return len(b), nil
}

// take returns what was written; nil is nothing.
func (r *records) take() *[]byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.out
	r.out = nil
	return out
}

// SetWriteDeadline has no effect once records are gathered: a tls.Conn sets it with its last
// message, and would forbid records that have not left yet.
func (r *records) SetWriteDeadline(at time.Time) error {
	if r.gathers.Load() {
		return nil
	}
	return r.Conn.SetWriteDeadline(at)
}
