package proxy

import (
	"sync/atomic"

	"lockproxy/lockcmd/syntax"
)

const (
	// freeBuf is what each session may always hold of a request that is not complete, bytes.
	freeBuf = 16 << 10
	// maxBuffers bounds what the sessions hold beyond that, all together, bytes.
	maxBuffers = 64 << 20
)

var errNoRoom = syntax.UsageError("ERR too many clients are sending large requests: " +
	"this one was not run, and its connection is closed; try again later")

// bufferQuota bounds the sessions' read buffers, so that many clients with unfinished requests do
// not take more memory than the proxy has.
type bufferQuota struct {
	used atomic.Int64
	max  int64
}

// halfFull reports whether sessions should give up memory that they can do without.
func (q *bufferQuota) halfFull() bool { return q.used.Load() > q.max/2 }

// reserve accounts for n bytes more if there is room for them. A negative n gives bytes back.
func (q *bufferQuota) reserve(n int64) bool {
	if q.used.Add(n) > q.max && n > 0 {
		q.used.Add(-n)
		return false
	}
	return true
}
