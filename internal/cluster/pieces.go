package cluster

// pieces is a text that lies in several places, in order. Its zero value is empty.
type pieces struct {
	first []byte
	more  [][]byte
	size  int
}

// piece is a text that lies in one place.
func piece(text []byte) pieces { return pieces{first: text, size: len(text)} }

func (p *pieces) add(b []byte) {
	if len(b) == 0 {
		return
	}
	if p.size == 0 {
		p.first = b
	} else {
		p.more = append(p.more, b)
	}
	p.size += len(b)
}

// append adds all of q.
func (p *pieces) append(q pieces) {
	p.add(q.first)
	for _, b := range q.more {
		p.add(b)
	}
}

// bytes is the whole text. It is a copy only if the text lies in several places.
func (p *pieces) bytes() []byte {
	if len(p.more) == 0 {
		return p.first
	}
	whole := make([]byte, 0, p.size)
	whole = append(whole, p.first...)
	for _, b := range p.more {
		whole = append(whole, b...)
	}
	return whole
}

// take moves bytes from the front to b, and returns how many.
func (p *pieces) take(b []byte) (n int) {
	for n < len(b) && p.size > 0 {
		k := copy(b[n:], p.first)
		n += k
		p.size -= k
		p.first = p.first[k:]
		if len(p.first) > 0 || p.size == 0 {
			continue
		}
		p.first, p.more = p.more[0], p.more[1:]
	}
	if p.size == 0 {
		*p = pieces{}
	}
	return n
}
