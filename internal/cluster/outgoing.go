package cluster

import "net"

// minChunk and maxChunk bound the memory that requests are gathered in, bytes. It grows as needed.
const minChunk, maxChunk = 1 << 10, 64 << 10

// outgoing is the bytes to be sent to a node.
type outgoing struct {
	full   [][]byte // chunks
	tail   []byte   // the last chunk, which is being filled
	sent   int      // bytes of tail
	unsent int      // bytes in all
}

// add returns where raw is now.
func (o *outgoing) add(raw []byte) []byte {
	if cap(o.tail)-len(o.tail) < len(raw) {
		if len(o.tail) > o.sent {
			o.full = append(o.full, o.tail[o.sent:])
		}
		size := min(max(2*cap(o.tail), minChunk), maxChunk)
		o.tail, o.sent = make([]byte, 0, max(size, len(raw))), 0
	}
	from := len(o.tail)
	o.tail = append(o.tail, raw...)
	o.unsent += len(raw)
	return o.tail[from:len(o.tail):len(o.tail)]
}

// drain returns what was added since the last call.
func (o *outgoing) drain() (out net.Buffers) {
	out = o.full
	if len(o.tail) > o.sent {
		out = append(out, o.tail[o.sent:])
	}
	o.full, o.sent, o.unsent = nil, len(o.tail), 0
	return out
}
