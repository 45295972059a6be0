package cluster

import (
	"bytes"
	"net"
)

// pieces is a text that lies in several places, in order. Its zero value is empty.
type pieces struct {
	list net.Buffers
	size int
}

// piece is a text that lies in one place.
func piece(text []byte) (p pieces) {
	p.add(text)
	return p
}

func (p *pieces) add(b []byte) {
	if len(b) > 0 {
		p.list = append(p.list, b)
		p.size += len(b)
	}
}

// append adds all of q, which must not be used any more.
func (p *pieces) append(q pieces) {
	if p.size == 0 {
		*p = q
		return
	}
	p.list = append(p.list, q.list...)
	p.size += q.size
}

// bytes is the whole text. It is a copy only if the text lies in several places.
func (p *pieces) bytes() []byte {
	if len(p.list) == 1 {
		return p.list[0]
	}
	return bytes.Join(p.list, nil)
}

// read moves bytes from the front to b, and returns their number.
func (p *pieces) read(b []byte) (n int) {
	n, _ = p.list.Read(b) // the error is the end
	p.size -= n
	return n
}
