package queue

import (
	"time"

	"lockproxy/internal/foreign"
	"lockproxy/internal/names"
)

// MayBeFree makes the first waiter poll.
func (q Queue) MayBeFree() {
	q.all.mu.Lock()
	defer q.all.mu.Unlock()
	q.all.changedLocked(q.id)
	if line := q.all.of[q.id]; line != nil {
		line.pollNow()
	}
}

// WakeDelayed makes the first in the line of delayed SETs ask again: the lock may be free.
func (q Queue) WakeDelayed() { q.all.delayed.wake(q.id) }

// KeyChanged makes the first waiter poll, unless it is the turn of foreign clients. It reports
// whether it is: then the next change counts, too.
func (q Queue) KeyChanged(now time.Time) (theirs bool) {
	qs := q.all
	qs.mu.Lock()
	defer qs.mu.Unlock()
	qs.changedLocked(q.id)
	line := qs.of[q.id]
	theirs = qs.foreign.haveTurn(q.id, now)
	switch {
	case line == nil:
		qs.delayed.wake(q.id)
	case !theirs:
		line.pollNow()
	}
	return line != nil && theirs
}

// KeyTracked notes that the lock's key is tracked from now on. If the key is missing, the first
// waiter polls, after the turn of foreign clients; otherwise that turn is over.
func (q Queue) KeyTracked(missing bool, now time.Time) {
	qs := q.all
	qs.mu.Lock()
	defer qs.mu.Unlock()
	qs.changedLocked(q.id)
	switch line := qs.of[q.id]; {
	case !missing:
		qs.foreign.turnOver(q.id)
	case line == nil:
	case qs.foreign.haveTurn(q.id, now):
		line.lease = minForeignPoll
		line.wakeFirst()
	default:
		line.pollNow()
	}
}

// ForeignCompete reports whether foreign clients have been seen at the lock lately.
func (q Queue) ForeignCompete(now time.Time) bool {
	q.all.mu.Lock()
	defer q.all.mu.Unlock()
	return q.all.foreign.compete(q.id, now)
}

// SawForeign notes that foreign clients compete for the lock. won says that a poll has found it
// theirs.
func (q Queue) SawForeign(won bool, now time.Time) {
	q.all.mu.Lock()
	defer q.all.mu.Unlock()
	if q.all.foreign.saw(q.id, now); won {
		q.all.foreign.won(q.id, now)
	}
}

// ForeignAnswered notes that the upstream has accepted a foreign client's request about the lock.
// If it can have taken the lock, the first waiter polls often from now on. If it may have released
// the lock, the first waiter polls at once.
func (q Queue) ForeignAnswered(action foreign.Action, taken, released bool, now time.Time) {
	qs := q.all
	qs.mu.Lock()
	defer qs.mu.Unlock()
	qs.changedLocked(q.id)
	line := qs.of[q.id]
	if line == nil {
		if released || action == foreign.Touch {
			qs.delayed.wake(q.id)
		}
		return
	}
	if action.Takes() || action == foreign.Touch {
		news := !qs.foreign.compete(q.id, now)
		qs.foreign.saw(q.id, now)
		if news {
			line.wakeFirst()
		}
	}
	if taken {
		qs.foreign.turnOver(q.id)
	}
	maybe := action == foreign.Touch || action == foreign.Release // some scripts answer 0
	if released || maybe && line.touched(now) {
		line.pollNow()
	}
}

// Reserved notes another proxy's claim that the lock with a hash is reserved for the first waiter,
// which polls. If nobody waits, left says that somebody has until lately, and for which lock, as
// whom. The lock may be reserved for that waiter. Only the first claim about it is answered so.
func (qs *Queues) Reserved(
	hash names.Hash, now time.Time,
) (id names.Lock, as names.Identity, left bool) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	switch line := qs.byHash[hash]; {
	case line == nil:
	case line.leftAt != nil:
		qs.forgetLocked(line)
		return line.id, line.leftAs, true
	case line.claims.come(now):
		line.pollNow()
	default:
		line.wakeFirst()
	}
	return id, as, false
}
