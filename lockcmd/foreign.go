package lockcmd

import "time"

// Foreign clients lock with SETNX recipes and know no LOCK. They and LOCK exclude each other by the
// timestamp at the key; see scripts/read.lua. But they poll, are in no queue, and some write before
// they know that they have lost. So:
//
//   - Where they compete for a lock, a release leaves the key free for all instead of handing it
//     over, and no waiter here takes it for a moment: the two kinds take turns. If they have had
//     more turns, as many hand-overs in a row make up for that.
//   - Where they compete, the first waiter polls when a release of theirs is relayed, or the
//     upstream tells of one (keyTracking). Then it hardly polls, otherwise often.
//   - Now and then a release leaves the key free although none has been seen: a gap. Foreign
//     clients that do not use this proxy would never find it free otherwise.
//   - After LOCK has taken over a lock from an expired timestamp there is a grace period, in which
//     only the lock record counts, and the proxy repairs what late writes do to the timestamp.

const (
	// foreignMemory is how long foreign clients count as competing since one was last seen.
	foreignMemory = 5 * time.Second
	// maxForeign bounds the locks that are remembered for their foreign clients.
	maxForeign = 10000

	// How often the first waiter polls where they compete. When a release has left the key free,
	// the first of these passes before a waiter takes it.
	minForeignPoll = 15 * time.Millisecond
	maxForeignPoll = 25 * time.Millisecond

	// maxForeignTurns bounds the hand-overs in a row that make up for their turns.
	maxForeignTurns = 16
)

// foreignClients is what is known of foreign clients, by the lock. Its caller holds queues.mu.
type foreignClients map[LockID]foreignSight

type foreignSight struct {
	seen  time.Time // when one was last seen
	freed time.Time // when a release here last left the key free for them
	turns int       // polls that found the lock theirs; hand-overs have not made up for them
}

// saw is for a command of a foreign client that competes for a lock.
func (f foreignClients) saw(id LockID, now time.Time) {
	if len(f) >= maxForeign {
		for old, sight := range f { // one that is over, otherwise any: it will be seen again
			delete(f, old)
			if now.Sub(sight.seen) < foreignMemory {
				break
			}
		}
	}
	sight := f[id]
	sight.seen = now
	f[id] = sight
}

// won is for a poll that has found the lock theirs.
func (f foreignClients) won(id LockID, now time.Time) {
	f.saw(id, now)
	sight := f[id]
	sight.turns = min(sight.turns+1, maxForeignTurns)
	f[id] = sight
}

// makeUp reports whether a release may hand the lock over although they compete: they have had it
// more often than the waiters here. It counts as one hand-over.
func (f foreignClients) makeUp(id LockID) bool {
	sight := f[id]
	if sight.turns == 0 {
		return false
	}
	sight.turns--
	f[id] = sight
	return true
}

// compete reports whether foreign clients have been seen at a lock lately.
func (f foreignClients) compete(id LockID, now time.Time) bool {
	sight, ok := f[id]
	if ok && now.Sub(sight.seen) > foreignMemory {
		delete(f, id)
		return false
	}
	return ok
}

// leftFree is for a release that has left a lock free: it is their turn, if they compete.
func (f foreignClients) leftFree(id LockID, now time.Time) {
	if f.compete(id, now) {
		sight := f[id]
		sight.freed = now
		f[id] = sight
	}
}

// haveTurn reports whether a lock has just been left free for them.
func (f foreignClients) haveTurn(id LockID, now time.Time) bool {
	return f.compete(id, now) && now.Sub(f[id].freed) < minForeignPoll
}

// turnOver is for a lock that one of them has taken since it was left free.
func (f foreignClients) turnOver(id LockID) {
	if sight, ok := f[id]; ok {
		sight.freed = time.Time{}
		f[id] = sight
	}
}
