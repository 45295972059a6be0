package queue

import (
	"time"

	"lockproxy/internal/names"
)

// Foreign clients lock with SETNX recipes and know no LOCK. They and LOCK exclude each other by the
// timestamp at the key; see script/read.lua. But they poll, are in no queue, and some write before
// they know that they have lost. So:
//
//   - Where they compete for a lock, a release leaves the key free for all instead of handing it
//     over, and no waiter here takes it for a moment: the two kinds take turns. If foreign clients
//     have had more turns, as many hand-overs in a row make up for that.
//   - Where they compete, the first waiter polls when a release of theirs is relayed, or the
//     upstream reports one. It polls often, unless Tracking follows the lock.
//   - Now and then a release leaves the key free although none has been seen: a gap. Otherwise
//     foreign clients that do not use this proxy would never find it free.
//   - After LOCK has taken over a lock from an expired timestamp there is a grace period. In it
//     only the lock record counts, and the proxy repairs a timestamp that a late write has changed.

const (
	// foreignMemory is how long foreign clients count as competing after one was last seen.
	foreignMemory = 5 * time.Second
	// maxForeign bounds the locks with foreign clients that are remembered.
	maxForeign = 10000

	// How often the first waiter polls where they compete. After a release has left the key free,
	// no waiter takes it for minForeignPoll.
	minForeignPoll = 15 * time.Millisecond
	maxForeignPoll = 25 * time.Millisecond

	// maxForeignTurns bounds the hand-overs in a row that make up for their turns.
	maxForeignTurns = 16
)

// foreignClients is what is known about foreign clients, by the lock. Callers hold Queues.mu.
type foreignClients map[names.Lock]*foreignSight

type foreignSight struct {
	seen  time.Time // when one was last seen
	freed time.Time // when a release here last left the key free for them
	turns int       // polls that found the lock theirs, without those made up for
}

// saw notes that a foreign client competes for a lock.
func (f foreignClients) saw(id names.Lock, now time.Time) *foreignSight {
	if f[id] == nil && len(f) >= maxForeign {
		for old, sight := range f { // an old one, otherwise any: it will be seen again
			delete(f, old)
			if now.Sub(sight.seen) < foreignMemory {
				break
			}
		}
	}
	if f[id] == nil {
		f[id] = &foreignSight{}
	}
	f[id].seen = now
	return f[id]
}

// won notes that a poll has found the lock theirs.
func (f foreignClients) won(id names.Lock, now time.Time) {
	sight := f.saw(id, now)
	sight.turns = min(sight.turns+1, maxForeignTurns)
}

// makeUp reports whether a release may hand the lock over although they compete: they have had more
// turns than the waiters here. It counts as one hand-over.
func (f foreignClients) makeUp(id names.Lock) bool {
	sight := f[id]
	if sight == nil || sight.turns == 0 {
		return false
	}
	sight.turns--
	return true
}

// compete reports whether foreign clients have been seen at a lock lately.
func (f foreignClients) compete(id names.Lock, now time.Time) bool {
	sight, ok := f[id]
	if ok && now.Sub(sight.seen) > foreignMemory {
		delete(f, id)
		return false
	}
	return ok
}

// leftFree notes that a release has left a lock free: it is their turn, if they compete.
func (f foreignClients) leftFree(id names.Lock, now time.Time) {
	if f.compete(id, now) {
		f[id].freed = now
	}
}

// haveTurn reports whether a lock has just been left free for them.
func (f foreignClients) haveTurn(id names.Lock, now time.Time) bool {
	return f.compete(id, now) && now.Sub(f[id].freed) < minForeignPoll
}

// turnOver notes that one of them has taken a lock since it was left free.
func (f foreignClients) turnOver(id names.Lock) {
	if sight := f[id]; sight != nil {
		sight.freed = time.Time{}
	}
}
