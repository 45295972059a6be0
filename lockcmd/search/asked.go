package search

import (
	"hash/maphash"
	"slices"
	"sync"
)

// askedBefore are the last questions that have come, by their hashes: each comes by several
// channels.
type askedBefore struct {
	mu     sync.Mutex
	hashes [128]uint64 // guarded by mu
	next   int         // guarded by mu
}

var askedSeed = maphash.MakeSeed()

// again reports whether a question has come before, and remembers it.
func (a *askedBefore) again(question, sealed string) bool {
	hash := maphash.String(askedSeed, question+sealed)
	a.mu.Lock()
	defer a.mu.Unlock()
	if slices.Contains(a.hashes[:], hash) {
		return true
	}
	a.hashes[a.next%len(a.hashes)] = hash
	a.next++
	return false
}
