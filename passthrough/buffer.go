package passthrough

import "sync"

const (
	smallBuffer = 512 // what an idle session can keep, bytes
	newBuffer   = 4 << 10
)

var buffers = sync.Pool{New: func() any { return new([newBuffer]byte) }}

// getBuffer returns b, or an empty buffer if it is nil.
func getBuffer(b []byte) []byte {
	if b == nil {
		b = buffers.Get().(*[newBuffer]byte)[:0]
	}
	return b
}

// putBuffer returns b emptied, or nil if it is too large for an idle session.
func putBuffer(b []byte) []byte {
	if cap(b) <= smallBuffer {
		return b[:0]
	}
	if cap(b) == newBuffer {
		buffers.Put((*[newBuffer]byte)(b[:newBuffer]))
	}
	return nil
}
