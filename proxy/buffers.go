package proxy

import (
	"sync/atomic"

	"lockproxy/lockcmd"
)

const (
	// freeBuf is what each session may always hold of a request that is not complete, bytes.
	freeBuf = 16 << 10
	// maxBuffers bounds what the sessions hold beyond that, all together, bytes.
	maxBuffers = 64 << 20
)

var errNoRoom = lockcmd.UsageError("ERR too many clients are sending large requests: " +
	"this one was not run, and its connection is closed; try again later")

// buffers accounts for the sessions' read buffers, so that many clients with unfinished requests do not
// take more memory than the proxy has.
type bufferQuota struct {
	used atomic.Int64
	max  int64
}

// tight reports whether sessions should give up what they can do without.
func (b *bufferQuota) scarce() bool { return b.used.Load() > b.max/2 }

// take accounts for n bytes more, or less, if there is room for them.
func (b *bufferQuota) reserve(n int64) bool {
	if b.used.Add(n) > b.max && n > 0 {
		b.used.Add(-n)
		return false
	}
	return true
}

// mayHold reports whether the session may have a buffer of size bytes, and accounts for it if so. A
// smaller one than before it may always have.
func (s *session) reserveBuffer(size int) bool {
	over := int64(max(0, size-freeBuf))
	if !s.server.buffers.reserve(over - s.reserved) {
		return false
	}
	s.reserved = over
	return true
}
