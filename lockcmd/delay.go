package lockcmd

import (
	"container/list"
	"context"
	"time"

	"lockproxy/internal/foreign"
)

// With --park the answer to a foreign client that asks for a held lock, by SET NX PX, can be
// delayed. Such clients wait in a line of their own. When the lock is released, the first of them
// asks the upstream again, unless clients wait by LOCK: then it is its turn after theirs.

// DelayedSet is one SET key value NX PX ms whose answer is delayed. Only its session uses it.
type DelayedSet struct {
	locks *Locks
	id    LockID
	since time.Time     // when its client began to ask; the line's order
	wake  chan struct{} // holds one: ask again
	place *list.Element
}

// How often the first in line asks although nothing has told it of a release.
const (
	minDelayedPoll = 100 * time.Millisecond
	maxDelayedPoll = 125 * time.Millisecond
)

// DelaySet puts a SET into the line, behind those whose clients began to ask earlier. Leave must
// follow.
func (l *Locks) DelaySet(db int, key string, since time.Time) *DelayedSet {
	d := &DelayedSet{locks: l, id: LockID{db, key}, since: since, wake: make(chan struct{}, 1)}
	l.mu.Lock()
	defer l.mu.Unlock()
	line := l.delayed[d.id]
	if line == nil {
		line = list.New()
		l.delayed[d.id] = line
	}
	before := line.Back()
	for before != nil && before.Value.(*DelayedSet).since.After(since) {
		before = before.Prev()
	}
	if before == nil {
		d.place = line.PushFront(d)
	} else {
		d.place = line.InsertAfter(d, before)
	}
	return d
}

// Leave ends the delay. Unless the SET has taken the lock, the next in line asks again.
func (d *DelayedSet) Leave(took bool) {
	l := d.locks
	l.mu.Lock()
	defer l.mu.Unlock()
	line := l.delayed[d.id]
	wasFirst := line.Front() == d.place
	line.Remove(d.place)
	switch {
	case line.Len() == 0:
		delete(l.delayed, d.id)
	case wasFirst && !took:
		line.Front().Value.(*DelayedSet).signal()
	}
}

// First reports whether the SET is first in line.
func (d *DelayedSet) First() bool {
	d.locks.mu.Lock()
	defer d.locks.mu.Unlock()
	return d.locks.delayed[d.id].Front() == d.place
}

// Woken is ready when the SET is to be asked again, if it is first.
func (d *DelayedSet) Woken() <-chan struct{} { return d.wake }

// Pause is after how long the first in line asks again in any case.
func (d *DelayedSet) Pause() time.Duration {
	pause, now := jitter(minDelayedPoll, maxDelayedPoll), time.Now()
	seen, ok := d.locks.foreignLocks.Get(foreign.ID(d.id), now)
	if ok && seen.Holder.Addr != "" {
		pause = min(pause, seen.Until.Sub(now)+2*time.Millisecond)
	}
	return max(pause, time.Millisecond)
}

// SeenHeld reports whether this proxy has seen that the lock was taken, and not that it was
// released.
func (d *DelayedSet) SeenHeld() bool {
	l := d.locks
	seen, ok := l.foreignLocks.Get(foreign.ID(d.id), time.Now())
	return ok && seen.Holder.Addr != "" || l.waitedFor(d.id) || l.registry.has(d.id)
}

func (d *DelayedSet) signal() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// wakeDelayedLocked is for a lock that may be free. mu is held.
func (l *Locks) wakeDelayedLocked(id LockID) {
	if line := l.delayed[id]; line != nil {
		line.Front().Value.(*DelayedSet).signal()
	}
}

// undoSet deletes a key that still has the value which a SET gave it.
const undoSet = `if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0`

// UndoSet releases a lock that a delayed SET has taken for a client that has gone.
func (l *Locks) UndoSet(as Identity, key, value string) {
	l.timers.after(0, func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, backgroundTimeout)
		defer cancel()
		err := l.background.client(as).Eval(ctx, undoSet, []string{key}, value).Err()
		if err != nil {
			l.log.Warn("cannot release a lock that was taken for a client that has gone: "+
				"it runs until its timeout", "key", key, "error", err)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.wakeDelayedLocked(LockID{as.DB, key})
	})
}
