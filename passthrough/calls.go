package passthrough

// Calls of scripts, which go together where several are ready at the same time.

import (
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"lockproxy/internal/monotonic"
	"lockproxy/internal/resp"
)

const (
	// maxCalls bounds the calls that go together. More save little, and others wait longer.
	maxCalls = 32
	// maxCallBytes bounds their first keys, bytes: a batch of long names would keep Redis busy.
	maxCallBytes = 16 << 10
	// refusedPause is for how long calls go alone after Redis has refused some that went together.
	refusedPause = time.Second
)

// Call is a call of a script. It can go together with calls for other keys, as one call of
// Config.BatchScript. This script takes the Keys of each, then the Name and the Args of each, and
// returns a list of what each has returned.
type Call struct {
	SHA        string // what EVALSHA calls the script
	Name       string // what BatchScript calls it
	Keys, Args []string
}

// callBatch is calls that have been gathered, to go together. Its zero value is empty. It does no
// I/O.
type callBatch struct {
	list        []*Answer    // to the calls
	bytes       int          // of their first keys
	words       []string     // room for a request
	pausedUntil atomic.Int64 // as monotonic.Now
}

// has reports whether one of the calls has a key of c, and so must have run before c.
func (b *callBatch) has(c *Call) bool {
	return slices.ContainsFunc(b.list, func(a *Answer) bool {
		return slices.ContainsFunc(c.Keys, func(key string) bool {
			return slices.Contains(a.call.Keys, key)
		})
	})
}

// add gathers a call. full reports whether no further call can go with it.
func (b *callBatch) add(a *Answer, batchScript string) (full bool) {
	a.with = b
	b.list = append(b.list, a)
	b.bytes += len(a.call.Keys[0])
	return len(b.list) == maxCalls || b.bytes > maxCallBytes || batchScript == "" ||
		monotonic.Now() < b.pausedUntil.Load()
}

// pause has calls go alone for a while.
func (b *callBatch) pause() { b.pausedUntil.Store(monotonic.Now() + int64(refusedPause)) }

// drain appends the request for the calls to raw, and empties the batch.
func (b *callBatch) drain(raw []byte, batchScript string) []byte {
	words := b.words[:0]
	if n := len(b.list); n == 1 {
		c := b.list[0].call
		words = append(words, "EVALSHA", c.SHA, strconv.Itoa(len(c.Keys)))
		words = append(append(words, c.Keys...), c.Args...)
	} else {
		keys := 0
		for _, a := range b.list {
			keys += len(a.call.Keys)
		}
		words = append(words, "EVALSHA", batchScript, strconv.Itoa(keys))
		for _, a := range b.list {
			words = append(words, a.call.Keys...)
		}
		for _, a := range b.list {
			words = append(append(words, a.call.Name), a.call.Args...)
		}
	}
	raw = resp.AppendCommand(raw, words...)
	clear(words) // they would keep the keys
	b.words = words
	b.drop()
	return raw
}

// drop empties the batch.
func (b *callBatch) drop() {
	clear(b.list)
	b.list, b.bytes = b.list[:0], 0
}
