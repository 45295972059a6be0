package eventloop

import (
	"slices"

	"lockproxy/internal/loopguard"
)

// Flusher has something to do at the end of an Iteration.
type Flusher interface{ Flush() }

// Iteration is one round of a loop. It calls the Handlers of all connections where something has
// arrived.
type Iteration struct {
	atEnd []Flusher
	buf   []byte
	me    loopguard.Goroutine // whose iteration it is
}

// AtEnd calls f.Flush once when the iteration ends, however often AtEnd is called.
func (it *Iteration) AtEnd(f Flusher) {
	if !slices.Contains(it.atEnd, f) {
		it.atEnd = append(it.atEnd, f)
	}
}

// Buffer returns size bytes that can be used until the Handler returns.
func (it *Iteration) Buffer(size int) []byte {
	if len(it.buf) < size {
		it.buf = make([]byte, size)
	}
	return it.buf[:size]
}

// Flush calls now what AtEnd has put off.
func (it *Iteration) Flush() {
	defer loopguard.Enter(&it.me)()
	for i, f := range it.atEnd {
		f.Flush()
		it.atEnd[i] = nil
	}
	it.atEnd = it.atEnd[:0]
}
