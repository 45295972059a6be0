package lockcmd

import (
	"sync/atomic"
	"time"

	"lockproxy/internal/journal"
	"lockproxy/internal/monotonic"
	"lockproxy/internal/names"
	"lockproxy/internal/resp"
	"lockproxy/lockcmd/failure"
	"lockproxy/lockcmd/held"
	"lockproxy/lockcmd/queue"
	"lockproxy/lockcmd/script"
)

// Observer measures locks. Many goroutines call it, and it must not block.
type Observer interface {
	// LockWaited is called when a LOCK … WAIT has ended, with the lock or without.
	LockWaited(d time.Duration, acquired bool)
	// LockHeld is called for a lock that was taken and released through this proxy.
	LockHeld(d time.Duration)
}

type noObserver struct{}

func (noObserver) LockWaited(time.Duration, bool) {}
func (noObserver) LockHeld(time.Duration)         {}

// counters is Stats as it grows.
type counters struct {
	acquired, shared, handedOver, renewed, held, overtime, gone, failed atomic.Uint64
	unlocked, forced, disconnect, expired, lost, fenced                 atomic.Uint64
	deadlocks                                                           atomic.Uint64
	onceHits, onceMakers, onceShared, onceStored, onceGivenUp           atomic.Uint64
}

// observed is what this proxy has seen happen to locks. It decides nothing.
type observed struct {
	*common
	observer Observer
	journal  *journal.Journal
	counters counters
	registry *held.Registry
	slowWait atomic.Int64 // Config.SlowWait, ns
	slowLog  logLimit
}

func newObserved(all *common) *observed {
	o := &observed{
		common: all, observer: all.cfg.Observer, journal: journal.New(all.cfg.History),
	}
	o.SetSlowWait(all.cfg.SlowWait)
	o.registry = held.NewRegistry(func(lock *held.Lock) {
		o.counters.expired.Add(1)
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
		o.counters.renewed.Add(1)
	} else {
		o.counters.acquired.Add(1)
		if lock.Value != "" {
			o.counters.onceMakers.Add(1)
		}
		if lock.Shared {
			o.counters.shared.Add(1)
		}
		lock.Journaled = o.journal.Acquired(lock.ID(), lock.Holder(), a.Waited,
			monotonic.Now())
	}
	return o.registry.Put(lock) // from now on it can end
}

// observeRefused notes a LOCK without WAIT that got nothing.
func (o *observed) observeRefused(id names.Lock, err error) {
	if err != nil {
		o.counters.failed.Add(1)
	} else {
		o.counters.held.Add(1)
		o.journal.Refused(id, monotonic.Now())
	}
}

// observeWaited notes a LOCK with WAIT that has ended.
func (o *observed) observeWaited(w *queue.Waiter, won bool, err error) {
	switch {
	case err == failure.ErrGone:
		o.counters.gone.Add(1)
		return
	case won:
	case err != nil && !failure.IsUnblocked(err):
		o.counters.failed.Add(1)
		return
	default:
		o.counters.overtime.Add(1)
	}
	o.observer.LockWaited(time.Since(w.Joined), won)
}

// observeRelease notes a release that has been answered, before the next holder is. It returns the
// lock that has ended, and those of its other holders, if this proxy had given them.
func (o *observed) observeRelease(
	r *unlockCall, v resp.Value, answer []int64, err error,
) (ended *held.Lock, others []*held.Lock) {
	released, p := err == nil && answer[0] != 0, r.proof
	if p.Kind == "force" {
		o.auditForce(r, v, released, err)
	}
	if !released {
		return nil, nil
	}
	o.counters.handedOver.Add(uint64(givenTo(answer)))
	asked := r.by != nil
	if p.Kind == "request" || p.Kind == "reserved" || p.Kind == "given" && asked {
		return nil, nil // no client was given the lock
	}
	kind := journal.Disconnected
	switch {
	case p.Kind == "revoke" || p.Kind == "force":
		o.counters.forced.Add(1)
		kind = journal.Forced
	case asked:
		o.counters.unlocked.Add(1)
		kind = journal.Released
	default:
		o.counters.disconnect.Add(1)
	}
	ended, others = o.registry.Remove(r.id, p, r.token)
	if ended == nil {
		client := ""
		if len(v.Elems) > 5 {
			client, _ = script.SplitWho(string(v.Elems[5].Text))
		}
		o.journalElsewhere(kind, r.id, r.token, client)
		return nil, nil
	}
	o.observeEnd(kind, ended)
	for _, lock := range others {
		o.observeEnd(kind, lock)
	}
	return ended, others
}

// observeLost notes that a session has lost a lock. ended says that none here has it any more.
func (o *observed) observeLost(kind journal.Kind, lock *held.Lock, ended bool) {
	o.counters.lost.Add(1)
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
