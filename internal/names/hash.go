package names

import (
	"crypto/sha1"
	"encoding/hex"
	"strconv"
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
