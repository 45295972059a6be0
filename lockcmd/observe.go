package lockcmd

import (
	"sync/atomic"
	"time"

	"lockproxy/internal/journal"
	"lockproxy/internal/loglimit"
	"lockproxy/internal/monotonic"
	"lockproxy/internal/names"
	"lockproxy/lockcmd/failure"
	"lockproxy/lockcmd/held"
	"lockproxy/lockcmd/queue"
	"lockproxy/lockcmd/script"
)

// observed is what this proxy has seen happen to locks. It decides nothing.
type observed struct {
	*common
	observer Observer
	journal  *journal.Journal
	counters Counters[atomic.Uint64]
	registry *held.Registry
	slowWait atomic.Int64 // Config.SlowWait, ns
	slowLog  loglimit.Limit
}

// hasServed reports whether the upstream has ever answered a LOCK. Before that nobody was given one
// that would have to be released.
func (o *observed) hasServed() bool {
	return o.counters.Acquired.Load()+o.counters.Renewed.Load()+o.counters.Held.Load() > 0
}

func newObserved(all *common) *observed {
	o := &observed{
		common: all, observer: all.cfg.Observer, journal: journal.New(all.cfg.History),
	}
	o.SetSlowWait(all.cfg.SlowWait)
	o.registry = held.NewRegistry(func(lock *held.Lock) {
		o.counters.Expired.Add(1)
		o.journalEnd(journal.Expired, lock, lock.Until.Load())
	})
	if o.observer == nil {
		o.observer = noObserver{}
	}
	return o
}

// observeAcquired notes a LOCK that is answered with an attempt's token. It returns what
// Registry.Put does.
func (o *observed) observeAcquired(lock *held.Lock, a script.Attempt) (earlier []*held.Lock) {
	if a.Renewed {
		o.counters.Renewed.Add(1)
	} else {
		o.counters.Acquired.Add(1)
		if lock.Once {
			o.counters.OnceMakers.Add(1)
		}
		if lock.Shared {
			o.counters.Shared.Add(1)
		}
		lock.Journaled = o.journal.Acquired(lock.ID(), lock.Holder(), a.Waited,
			monotonic.Now())
	}
	return o.registry.Put(lock) // from now on it can end
}

// observeRefused notes a LOCK without WAIT that got nothing.
func (o *observed) observeRefused(id names.Lock, err error) {
	if err != nil {
		o.counters.Failed.Add(1)
	} else {
		o.counters.Held.Add(1)
		o.journal.Refused(id, monotonic.Now())
	}
}

// observeWaited notes a LOCK with WAIT that has ended.
func (o *observed) observeWaited(w *queue.Waiter, won bool, err error) {
	switch {
	case err == failure.ErrGone:
		o.counters.Gone.Add(1)
		return
	case won:
	case err != nil && !failure.IsUnblocked(err):
		o.counters.Failed.Add(1)
		return
	default:
		o.counters.Overtime.Add(1)
	}
	o.observer.LockWaited(time.Since(w.Joined), won)
}

// observeLost notes that a session has lost a lock. ended says that none here has it any more.
func (o *observed) observeLost(kind journal.Kind, lock *held.Lock, ended bool) {
	o.counters.Lost.Add(1)
	if ended {
		o.journalEnd(kind, lock, monotonic.Now())
	}
}

// observeEnd notes that a release has ended a lock of this proxy.
func (o *observed) observeEnd(kind journal.Kind, lock *held.Lock) {
	now := monotonic.Now()
	o.journalEnd(kind, lock, now)
	o.observer.LockHeld(time.Duration(now - lock.Since))
}

// SetSlowWait changes Config.SlowWait for later waits.
func (o *observed) SetSlowWait(d time.Duration) { o.slowWait.Store(int64(d)) }

// journalEnd notes that a lock has ended.
func (o *observed) journalEnd(kind journal.Kind, lock *held.Lock, at int64) {
	o.journal.Ended(kind, lock.ID(), lock.Holder(), lock.Journaled, lock.Since, at)
}

// journalElsewhere notes a release here of a lock that this proxy had not given.
func (o *observed) journalElsewhere(
	kind journal.Kind, id names.Lock, token int64, who script.Who,
) {
	now := monotonic.Now()
	o.journal.Ended(kind, id, journal.Holder{Token: token, Client: who.Client, Note: who.Note},
		journal.Acquisition{}, now, now)
}
