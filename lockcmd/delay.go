package lockcmd

import (
	"context"
	"time"

	"lockproxy/internal/names"
	"lockproxy/lockcmd/queue"
)

// With --park the answer to a foreign client's SET NX PX for a held lock can be delayed. Such
// clients wait in a separate line. When the lock is released, the first of them asks the upstream
// again. If clients wait by LOCK, its turn is after theirs.

// DelayedSet is one SET key value NX PX ms with a delayed answer. Only its session uses it.
type DelayedSet struct {
	queue.Delayed
	among *traffic
}

// DelaySet puts a SET into the line: see queue.Queue.Delay.
func (f *traffic) DelaySet(db int, key string, since time.Time, wake func()) *DelayedSet {
	return &DelayedSet{f.queues.Of(names.Lock{DB: db, Key: key}).Delay(since, wake), f}
}

// Pause is how long the first in line waits before it asks again without a sign.
func (d *DelayedSet) Pause() time.Duration {
	pause, now := queue.IdlePause()/2, time.Now()
	seen, _ := d.among.known.Get(d.Lead.ID(), now)
	if seen.Holder.Addr != "" {
		pause = min(pause, seen.Until.Sub(now)+2*time.Millisecond)
	}
	return max(pause, time.Millisecond)
}

// SeenHeld reports whether this proxy has seen the lock taken, and not released.
func (d *DelayedSet) SeenHeld() bool {
	f, id := d.among, d.Lead.ID()
	taken, _ := f.known.Get(id, time.Now())
	return taken.Holder.Addr != "" || f.queues.Of(id).HasWaiters() || f.locks.Has(id)
}

// undoSet deletes a key that still has its SET's value.
const undoSet = `if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0`

// UndoSet releases a lock that a delayed SET has taken for a client that is disconnected.
func (f *traffic) UndoSet(as names.Identity, key, value string) {
	f.Timers.After(0, func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, f.Clients.Patience())
		defer cancel()
		err := f.Clients.Client(as).Eval(ctx, undoSet, []string{key}, value).Err()
		if err != nil {
			f.Log.Warn("cannot release a lock that was taken for a client that has disconnected: "+
				"the lock is held until its timeout", "key", key, "error", err)
		}
		f.queues.Of(names.Lock{DB: as.DB, Key: key}).WakeDelayed()
	})
}
