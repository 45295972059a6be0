package lockcmd

import (
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
	tracking *hints.Tracking
}

// Stats is what has happened to locks through this proxy, since it started.
type Stats struct {
	Acquired   uint64 // with a new token
	Shared     uint64 // of Acquired, by SHARED or LIMIT
	HandedOver uint64 // of Acquired, given to a waiter by the script that released the lock
	Renewed    uint64 // by a LOCK of the owner that had the lock
	Held       uint64 // refused: held by another
	Overtime   uint64 // refused: still held when the WAIT was over
	Gone       uint64 // the client closed while it waited
	Failed     uint64 // answered with an error

	Unlocked   uint64 // released by their holders
	Forced     uint64 // released by FORCE, or the admin page
	Disconnect uint64 // released because the holder's connection had closed
	Expired    uint64 // taken here, and expired with no release seen here
	Lost       uint64 // session locks that could not be renewed in time, or were taken away
	Deadlocks  uint64 // found between owners, whether or not one of them was refused
	Fenced     uint64 // FENCEs that were refused with FENCED

	Once Once

	Foreign foreign.Counts // locks of foreign clients of this proxy

	Waiters int // clients that wait now
	// OldestWait is the longest time that one of them has waited.
	OldestWait time.Duration
	Waiting    time.Duration // the sum of their times
	Queues     int           // locks that they wait for
	Holding    int           // locks that were taken here and have not been seen to end
}

// Once is what has happened to ONCE and DONE through this proxy.
type Once struct {
	Hits    uint64 // ONCEs answered with a value that was there
	Makers  uint64 // that were given the claim
	Shared  uint64 // that waited, and were answered with the value
	Stored  uint64 // DONEs that stored a value
	GivenUp uint64 // DONEs without a value that gave up a claim
}

// Stats returns what has happened so far.
func (l *queries) Stats() Stats {
	holding := l.seen.registry.Sweep(monotonic.Now())
	waits := l.queues.Totals(time.Now())
	t := &l.seen.counters
	return Stats{
		Acquired: t.acquired.Load(), Shared: t.shared.Load(),
		HandedOver: t.handedOver.Load(), Renewed: t.renewed.Load(),
		Held: t.held.Load(), Overtime: t.overtime.Load(),
		Gone: t.gone.Load(), Failed: t.failed.Load(),
		Unlocked: t.unlocked.Load(), Forced: t.forced.Load(), Disconnect: t.disconnect.Load(),
		Expired: t.expired.Load(), Lost: t.lost.Load(), Fenced: t.fenced.Load(),
		Deadlocks: t.deadlocks.Load(),
		Once: Once{Hits: t.onceHits.Load(), Makers: t.onceMakers.Load(), Shared: t.onceShared.Load(),
			Stored: t.onceStored.Load(), GivenUp: t.onceGivenUp.Load()},
		Foreign: l.traffic.foreignCounts(),
		Waiters: waits.Waiters, OldestWait: waits.Oldest, Waiting: waits.Sum,
		Queues: waits.Queues, Holding: holding,
	}
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
