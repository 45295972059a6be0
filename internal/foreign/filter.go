package foreign

import (
	"hash/maphash"
	"sync/atomic"
)

// Filter tells at almost no cost of most keys that they are not among those that were added. Any
// goroutine may use it.
type Filter struct {
	seed   maphash.Seed
	counts [1 << 12]atomic.Int32
}

// NewFilter returns a Filter without keys.
func NewFilter() *Filter { return &Filter{seed: maphash.MakeSeed()} }

// Add adds a key, or with -1 removes one that was added.
func (f *Filter) Add(key string, n int32) {
	f.counts[maphash.String(f.seed, key)%uint64(len(f.counts))].Add(n)
}

// May reports whether a key can be among those that were added. false is certain.
func (f *Filter) May(key []byte) bool {
	return f.counts[maphash.Bytes(f.seed, key)%uint64(len(f.counts))].Load() > 0
}
