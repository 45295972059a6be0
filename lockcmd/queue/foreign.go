package queue

import "time"

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

	// How often the first waiter polls where they compete. After a release has left the key free,
	// no waiter takes it for minForeignPoll.
	minForeignPoll = 15 * time.Millisecond
	maxForeignPoll = 25 * time.Millisecond

	// maxForeignTurns bounds the hand-overs in a row that make up for their turns.
	maxForeignTurns = 16
)

// foreignSight is what is known about the foreign clients of one lock. Queues.mu guards it.
type foreignSight struct {
	seen  time.Time // when one was last seen
	freed time.Time // when a release here last left the key free for them
	turns int       // polls that found the lock theirs, without those made up for
}

// won notes that a poll has found the lock theirs.
func (f *foreignSight) won() { f.turns = min(f.turns+1, maxForeignTurns) }

// makeUp reports whether a release may hand the lock over although they compete: they have had more
// turns than the waiters here. It counts as one hand-over.
func (f *foreignSight) makeUp() bool {
	if f.turns == 0 {
		return false
	}
	f.turns--
	return true
}

// compete reports whether foreign clients have been seen at the lock lately.
func (f *foreignSight) compete(now time.Time) bool {
	return !f.seen.IsZero() && now.Sub(f.seen) <= foreignMemory
}

// leftFree notes that a release has left the lock free: it is their turn, if they compete.
func (f *foreignSight) leftFree(now time.Time) { f.freed = now }

// haveTurn reports whether the lock has just been left free for them.
func (f *foreignSight) haveTurn(now time.Time) bool {
	return f.compete(now) && now.Sub(f.freed) < minForeignPoll
}

// turnOver notes that one of them has taken the lock since it was left free.
func (f *foreignSight) turnOver() { f.freed = time.Time{} }
