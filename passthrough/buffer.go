package passthrough

import "sync"

const (
	smallBuffer = 512 // bytes that an idle session keeps
	newBuffer   = 4 << 10
)

var buffers = sync.Pool{New: func() any { return new([newBuffer]byte) }}

func getBuffer() []byte { return buffers.Get().(*[newBuffer]byte)[:0] }

// putBuffer returns b emptied, or nil if an idle session should not keep so much.
func putBuffer(b []byte) []byte {
	if cap(b) <= smallBuffer {
		return b[:0]
	}
	if cap(b) == newBuffer {
		buffers.Put((*[newBuffer]byte)(b[:newBuffer]))
	}
	return nil
}
