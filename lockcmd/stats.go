package lockcmd

import (
	"reflect"
	"sync/atomic"
	"time"

	"lockproxy/internal/foreign"
	"lockproxy/internal/journal"
	"lockproxy/internal/monotonic"
	"lockproxy/internal/names"
	"lockproxy/lockcmd/hints"
	"lockproxy/lockcmd/queue"
)

// queries tells users and operators about locks. Operators can release them, too.
type queries struct {
	*common
	queues   *queue.Queues
	seen     *observed
	traffic  *traffic
	releases *releases
	listener *hints.Listener
}

// Counters is what has happened to locks through this proxy, since it started.
type Counters[N any] struct {
	Acquired   N // with a new token
	Shared     N // of Acquired, by SHARED or LIMIT
	HandedOver N // of Acquired, given to a waiter by the script that released the lock
	Renewed    N // by a LOCK of the owner that had the lock
	Held       N // refused: held by another
	Overtime   N // refused: still held when the WAIT was over
	Gone       N // the client closed while it waited
	Failed     N // answered with an error

	Unlocked   N // released by their holders
	Forced     N // released by FORCE, or the admin page
	Disconnect N // released because the holder's connection had closed
	Expired    N // taken here, and expired with no release seen here
	Lost       N // session locks that could not be renewed in time, or were taken away
	Deadlocks  N // found between owners, whether or not one of them was refused
	Fenced     N // FENCEs that were refused with FENCED

	OnceHits    N // ONCEs answered with a value that was there
	OnceMakers  N // that were given the claim
	OnceShared  N // that waited, and were answered with the value
	OnceStored  N // DONEs that stored a value
	OnceGivenUp N // DONEs without a value that gave up a claim
}

// Stats are the Counters at one moment, and how locks and waiters stand.
type Stats struct {
	Counters[uint64]

	Foreign foreign.Counts // locks of foreign clients of this proxy

	Waiters int // clients that wait now
	// OldestWait is the longest time that one of them has waited.
	OldestWait time.Duration
	Waiting    time.Duration // the sum of their times
	Queues     int           // locks that they wait for
	Holding    int           // locks that were taken here and have not been seen to end
}

// Stats returns what has happened so far.
func (l *queries) Stats() Stats {
	holding := l.seen.registry.Sweep(monotonic.Now())
	waits := l.queues.Totals(time.Now())
	st := Stats{
		Foreign: l.traffic.foreignCounts(),
		Waiters: waits.Waiters, OldestWait: waits.Oldest, Waiting: waits.Sum,
		Queues: waits.Queues, Holding: holding,
	}
	from, to := reflect.ValueOf(&l.seen.counters).Elem(), reflect.ValueOf(&st.Counters).Elem()
	for i := range from.NumField() {
		to.Field(i).SetUint(from.Field(i).Addr().Interface().(*atomic.Uint64).Load())
	}
	return st
}

// Costs returns what matching locks have cost within a time, up to the last hour, in no order.
func (l *queries) Costs(within time.Duration, match func(names.Lock) bool) []journal.Cost {
	l.sweep()
	list := l.seen.journal.Costs(within, monotonic.Now(), func(id *names.Lock) bool {
		return match(*id)
	})
	for i := range list {
		if line := l.queues.Of(list[i].Lock).Line(); line.Waiters > 0 {
			list[i].LongestWait = max(list[i].LongestWait, time.Since(line.Oldest))
		}
	}
	return list
}

// Events returns up to limit of the events of the last hour that match, newest first. more says
// that there are others.
func (l *queries) Events(
	limit int, match func(*journal.Event) bool,
) (list []journal.Event, more bool) {
	l.sweep()
	return l.seen.journal.Events(monotonic.Now()-int64(journal.Window), limit, match)
}

// sweep tells the journal of all locks that have expired.
func (l *queries) sweep() {
	l.seen.registry.Sweep(monotonic.Now())
	l.traffic.foreignCounts()
}
