package names

import (
	"crypto/sha1"
	"encoding/hex"
	"strconv"
	"sync"
)

// Hash names a lock in messages that others can read, without telling its name: unlock.lua makes
// the same one.
type Hash [sha1.Size]byte

// Hash is the lock's hash.
func (l Lock) Hash() Hash {
	text := strconv.AppendInt(make([]byte, 0, 64), int64(l.DB), 10)
	return sha1.Sum(append(append(text, ':'), l.Key...))
}

// ParseHash reads a Hash from a message.
func ParseHash(text string) (h Hash, ok bool) {
	if len(text) != hex.EncodedLen(len(h)) {
		return h, false
	}
	_, err := hex.Decode(h[:], []byte(text))
	return h, err == nil
}

// Index finds locks by their hashes. The zero value is empty.
type Index struct {
	mu    sync.Mutex
	locks map[Hash]indexed // guarded by mu
}

type indexed struct {
	Lock
	n int
}

// Add adds a lock n times, or with a negative n takes it out.
func (x *Index) Add(l Lock, n int) {
	hash := l.Hash()
	x.mu.Lock()
	defer x.mu.Unlock()
	one := indexed{l, x.locks[hash].n + n}
	if one.n <= 0 {
		delete(x.locks, hash)
		return
	}
	if x.locks == nil {
		x.locks = map[Hash]indexed{}
	}
	x.locks[hash] = one
}

// Find returns the lock with a hash.
func (x *Index) Find(hash Hash) (l Lock, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	one, ok := x.locks[hash]
	return one.Lock, ok
}
