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
	e := q.all.known(q.id)
	e.changed()
	e.pollNow()
}

// WakeDelayed makes the first in the line of delayed SETs ask again: the lock may be free.
func (q Queue) WakeDelayed() {
	q.all.mu.Lock()
	defer q.all.mu.Unlock()
	q.all.known(q.id).wakeDelayed()
}

// KeyChanged makes the first waiter poll, unless it is the turn of foreign clients. It reports
// whether it is: then the next change counts, too.
func (q Queue) KeyChanged(now time.Time) (theirs bool) {
	q.all.mu.Lock()
	defer q.all.mu.Unlock()
	e := q.all.known(q.id)
	e.changed()
	theirs = e.foreign.haveTurn(now)
	switch {
	case e.line == nil:
		e.wakeDelayed()
	case !theirs:
		e.pollNow()
	}
	return e.line != nil && theirs
}

// KeyTracked notes that the lock's key is tracked from now on. If the key is missing, the first
// waiter polls, after the turn of foreign clients; otherwise that turn is over.
func (q Queue) KeyTracked(missing bool, now time.Time) {
	q.all.mu.Lock()
	defer q.all.mu.Unlock()
	e := q.all.known(q.id)
	e.changed()
	switch {
	case !missing:
		e.foreign.turnOver()
	case e.line != nil && e.foreign.haveTurn(now):
		e.line.lease = minForeignPoll
		e.line.wakeFirst()
	default:
		e.pollNow()
	}
}

// ForeignCompete reports whether foreign clients have been seen at the lock lately.
func (q Queue) ForeignCompete(now time.Time) bool {
	q.all.mu.Lock()
	defer q.all.mu.Unlock()
	return q.all.known(q.id).foreign.compete(now)
}

// SawForeign notes that foreign clients compete for the lock. won says that a poll has found it
// theirs.
func (q Queue) SawForeign(won bool, now time.Time) {
	q.all.mu.Lock()
	defer q.all.mu.Unlock()
	if sight := q.all.sawLocked(q.id, now); won {
		sight.won()
	}
}

// ForeignAnswered notes that the upstream has accepted a foreign client's request about the lock.
// If it can have taken the lock, the first waiter polls often from now on. If it may have released
// the lock, the first waiter polls at once.
func (q Queue) ForeignAnswered(action foreign.Action, taken, released bool, now time.Time) {
	qs := q.all
	qs.mu.Lock()
	defer qs.mu.Unlock()
	e := qs.known(q.id)
	e.changed()
	if e.line == nil {
		if released || action == foreign.Touch {
			e.wakeDelayed()
		}
		return
	}
	if action.Takes() || action == foreign.Touch {
		news := !e.foreign.compete(now)
		if qs.sawLocked(q.id, now); news {
			e.line.wakeFirst()
		}
	}
	if taken {
		e.foreign.turnOver()
	}
	maybe := action == foreign.Touch || action == foreign.Release // some scripts answer 0
	if released || maybe && e.line.touched(now) {
		e.pollNow()
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
	switch e := qs.byHash[hash]; {
	case e == nil:
	case e.line == nil && e.leftAs != nil:
		as, e.leftAs = *e.leftAs, nil
		return e.id, as, true
	case e.line == nil:
	case e.line.claims.come(now):
		e.pollNow()
	default:
		e.line.wakeFirst()
	}
	return id, as, false
}
