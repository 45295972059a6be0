package names

import (
	"hash/maphash"
	"sync/atomic"
)

// Filter tells at almost no cost that a key was not added. It recognizes most such keys. Any
// goroutine can use it.
type Filter struct {
	counts [1 << 16]atomic.Int32 // each key has two
}

var filterSeed = maphash.MakeSeed()

// Add adds a key, or with -1 removes one that was added.
func (f *Filter) Add(key string, n int32) {
	sum := maphash.String(filterSeed, key)
	f.count(sum).Add(n)
	f.count(sum >> 32).Add(n)
}

// May reports whether a key may have been added. false is certain.
func (f *Filter) May(key []byte) bool {
	sum := maphash.Bytes(filterSeed, key)
	return f.count(sum).Load() > 0 && f.count(sum>>32).Load() > 0
}

func (f *Filter) count(sum uint64) *atomic.Int32 { return &f.counts[sum%uint64(len(f.counts))] }
