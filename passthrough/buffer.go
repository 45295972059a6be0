package passthrough

import "sync"

const (
	smallBuffer = 512 // bytes that a session may keep while it is idle
	newBuffer   = 4 << 10
)

var buffers = sync.Pool{New: func() any { return new([newBuffer]byte) }}

func takeBuffer() []byte { return buffers.Get().(*[newBuffer]byte)[:0] }

// keepBuffer is an empty buffer of what b was, or nil if that was so large that an idle session should not keep it.
func keepBuffer(b []byte) []byte {
	if cap(b) <= smallBuffer {
		return b[:0]
	}
	if cap(b) == newBuffer {
		buffers.Put((*[newBuffer]byte)(b[:newBuffer]))
	}
	return nil
}
