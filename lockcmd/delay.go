package lockcmd

import (
	"context"
	"slices"
	"time"

	"lockproxy/internal/names"
)

// With --park the answer to a foreign client's SET NX PX for a held lock can be delayed. Such
// clients wait in a separate line. When the lock is released, the first of them asks the upstream
// again. If clients wait by LOCK, its turn is after theirs.

// DelayedSet is one SET key value NX PX ms with a delayed answer. Only its session uses it.
type DelayedSet struct {
	among *foreignTraffic
	id    names.Lock
	since time.Time     // when its client began to ask; this orders the line
	wake  chan struct{} // holds one: ask again
}

// delayedSets are the lines of DelayedSets. No line is empty. Callers hold queues.mu.
type delayedSets map[names.Lock][]*DelayedSet

// wake makes the first in a lock's line ask again: the lock may be free.
func (lines delayedSets) wake(id names.Lock) {
	if line := lines[id]; line != nil {
		line[0].signal()
	}
}

// How often the first in line asks without a sign of a release.
const (
	minDelayedPoll = 100 * time.Millisecond
	maxDelayedPoll = 125 * time.Millisecond
)

// DelaySet puts a SET into the line, in the order in which clients began to ask. Leave must follow.
func (f *foreignTraffic) DelaySet(db int, key string, since time.Time) *DelayedSet {
	d := &DelayedSet{among: f, id: names.Lock{DB: db, Key: key}, since: since,
		wake: make(chan struct{}, 1)}
	f.queues.mu.Lock()
	defer f.queues.mu.Unlock()
	line := f.queues.delayed[d.id]
	place := len(line)
	for place > 0 && line[place-1].since.After(since) {
		place--
	}
	f.queues.delayed[d.id] = slices.Insert(line, place, d)
	return d
}

// Leave ends the delay. Unless the SET has taken the lock, the next in line asks again.
func (d *DelayedSet) Leave(took bool) {
	qs := d.among.queues
	qs.mu.Lock()
	defer qs.mu.Unlock()
	line := qs.delayed[d.id]
	place := slices.Index(line, d)
	line = slices.Delete(line, place, place+1)
	if len(line) == 0 {
		delete(qs.delayed, d.id)
		return
	}
	qs.delayed[d.id] = line
	if place == 0 && !took {
		line[0].signal()
	}
}

// First reports whether the SET is first in line.
func (d *DelayedSet) First() bool {
	qs := d.among.queues
	qs.mu.Lock()
	defer qs.mu.Unlock()
	return qs.delayed[d.id][0] == d
}

// Woken is ready when the first in line must ask again.
func (d *DelayedSet) Woken() <-chan struct{} { return d.wake }

// Pause is how long the first in line waits before it asks again without a sign.
func (d *DelayedSet) Pause() time.Duration {
	pause, now := jitter(minDelayedPoll, maxDelayedPoll), time.Now()
	seen, ok := d.among.known.Get(d.id, now)
	if ok && seen.Holder.Addr != "" {
		pause = min(pause, seen.Until.Sub(now)+2*time.Millisecond)
	}
	return max(pause, time.Millisecond)
}

// SeenHeld reports whether this proxy has seen the lock taken, and not released.
func (d *DelayedSet) SeenHeld() bool {
	f := d.among
	taken, ok := f.known.Get(d.id, time.Now())
	return ok && taken.Holder.Addr != "" || f.queues.waitedFor(d.id) || f.seen.registry.Has(d.id)
}

func (d *DelayedSet) signal() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// undoSet deletes a key that still has its SET's value.
const undoSet = `if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0`

// UndoSet releases a lock that a delayed SET has taken for a client that has gone.
func (f *foreignTraffic) UndoSet(as names.Identity, key, value string) {
	f.Timers.After(0, func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, f.Clients.Patience())
		defer cancel()
		err := f.Clients.Client(as).Eval(ctx, undoSet, []string{key}, value).Err()
		if err != nil {
			f.Log.Warn("cannot release a lock that was taken for a client that has disconnected: "+
				"it runs until its timeout", "key", key, "error", err)
		}
		f.queues.mu.Lock()
		defer f.queues.mu.Unlock()
		f.queues.delayed.wake(names.Lock{DB: as.DB, Key: key})
	})
}
