package proxy

import (
	"errors"
	"net"
	"syscall"
	"time"

	"lockproxy/internal/loopguard"
	"lockproxy/internal/resp"
)

const (
	// minSessionBuf is enough for most clients, see makeRoom.
	minSessionBuf = 1 << 10
	// maxSessionBuf lets a value of 64 KB be read at once, with what stands around it.
	maxSessionBuf = 72 << 10
	// growth is by how much a buffer grows that is too small; 2 would leave more garbage.
	growth = 4
)

// input is what has been read from the client and not relayed yet.
type input struct {
	client *client
	framer *resp.Framer
	quota  *bufferQuota

	buf         []byte // buf[start:end] is the unread part
	start, end  int
	reserved    int64     // of quota
	news        int       // counts what has come: bytes, or the end
	socketEmpty bool      // the last read has left nothing in the socket
	hungUp      bool      // the client has closed, though not all that it has sent could be read
	unhandled   bool      // an event loop has read something that it leaves to the goroutine
	readErr     error     // what ended the reading, once something has
	readEnded   time.Time // when it came; zero if that is not known
}

// read reads what the client has sent, at least a byte, into the buffer.
func (in *input) read() {
	loopguard.MayWait()
	n, err := in.client.from.Read(in.buf[in.end:])
	if isTimeout(err) && in.client.drains() { // drain has interrupted it
		err = nil
	}
	in.filled(n, err)
}

// filled records a read into the buffer.
func (in *input) filled(n int, err error) {
	in.socketEmpty = in.end+n < len(in.buf)
	in.end += n
	in.news++
	if err != nil && in.readErr == nil { // peek can have set it
		in.readErr = err
		in.ended()
	}
	in.received(n)
}

// ended notes when the client has closed. The session's goroutine can find that late, since it
// waits for a connection to the upstream: a loop is told at once.
func (in *input) ended() {
	if in.readEnded.IsZero() {
		in.readEnded = time.Now().Add(-in.client.reg.ClosedFor())
	}
}

// received counts n bytes that were read, if there are any. The client has read what it was sent
// before it sent them.
func (in *input) received(n int) {
	if n > 0 {
		in.client.received(n)
		in.client.holder.MarkDelivered(in.client.in.Load())
	}
}

// hasUnread reports whether the client has sent something that has not been handled.
func (in *input) hasUnread() bool {
	if in.client.wrapped() { // TLS can hold something
		in.client.interruptRead()
		in.read()
		in.client.SetReadDeadline(time.Time{})
		if in.end > in.start || in.readErr != nil {
			return true
		}
	}
	n, err := in.peek()
	return n > 0 && err == nil
}

// peek is client.peek. A reset ends the input: the kernel tells it once, and a read that follows
// sees an ordinary end.
func (in *input) peek() (n int, err error) {
	n, err = in.client.peek()
	if errors.Is(err, syscall.ECONNRESET) && in.readErr == nil {
		in.readErr = err
		in.ended()
	}
	return n, err
}

// gone reports whether the client is known to have closed: whether the kernel has its FIN or reset,
// and nothing sent before it is left to read. It reads nothing.
func (in *input) gone() bool {
	if in.readErr != nil || in.hungUp {
		return true
	}
	n, err := in.peek()
	return n == 0 && err == nil || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, net.ErrClosed)
}

// reserve reports whether the buffer can have size bytes, and accounts for them if so. It may
// always become smaller.
func (in *input) reserve(size int) bool {
	over := int64(max(0, size-freeBuf))
	if !in.quota.reserve(over - in.reserved) {
		return false
	}
	in.reserved = over
	return true
}

// compact moves what has not been relayed to the beginning of the buffer. A buffer that was
// filled becomes larger, and one that was large for a single request smaller again.
func (in *input) compact() {
	if in.start == 0 {
		return
	}
	room, size := in.buf, len(in.buf)
	switch filled := in.end == size; {
	case in.start == in.end && size > freeBuf && in.quota.halfFull():
		size = minSessionBuf
	case filled && size < maxSessionBuf, size > maxSessionBuf && in.start == in.end:
		size = min(growth*size, maxSessionBuf)
	}
	if size != len(in.buf) && in.reserve(size) {
		room = make([]byte, size)
	}
	if in.start == in.end || len(room) != len(in.buf) {
		in.framer.Forget()
	}
	in.start, in.end, in.buf = 0, copy(room, in.buf[in.start:in.end]), room
}

// grow makes a full buffer larger, up to limit at first. It reports false if there is no room for
// that.
func (in *input) grow(limit int) bool {
	size := growth * len(in.buf)
	if len(in.buf) < limit {
		size = min(size, limit)
	}
	if !in.reserve(size) {
		return false
	}
	in.buf = append(make([]byte, 0, size), in.buf...)[:size]
	return true
}

// hasRoom reports whether more can be read behind what waits. Requests that refer to the buffer
// stay valid.
func (in *input) hasRoom() bool {
	if in.end < len(in.buf) {
		return true
	}
	unread := in.buf[in.start:in.end]
	size := min(growth*max(len(unread), minSessionBuf/growth), maxSessionBuf)
	if size <= len(unread) || !in.reserve(size) {
		return false
	}
	in.buf = append(make([]byte, 0, size), unread...)[:size]
	in.start, in.end = 0, len(unread)
	return true
}
