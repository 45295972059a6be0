package lockcmd

import (
	"sync/atomic"
	"time"

	"lockproxy/internal/foreign"
	"lockproxy/internal/journal"
	"lockproxy/internal/monotonic"
	"lockproxy/internal/resp"
)

// Observer measures locks. Many goroutines call it, and it must not block.
type Observer interface {
	// LockWaited is for a LOCK … WAIT that has ended, with the lock or without.
	LockWaited(d time.Duration, acquired bool)
	// LockHeld is for a lock that was taken and released through this proxy.
	LockHeld(d time.Duration)
}

type noObserver struct{}

func (noObserver) LockWaited(time.Duration, bool) {}
func (noObserver) LockHeld(time.Duration)         {}

// Stats is what has happened to locks through this proxy, since it started.
type Stats struct {
	Acquired   uint64 // with a new token
	HandedOver uint64 // of Acquired, given to a waiter by the script that released the lock
	Renewed    uint64 // a LOCK by the owner who had the lock
	Held       uint64 // refused: held by another
	Overtime   uint64 // refused: still held when the WAIT was over
	Gone       uint64 // the client closed while it waited
	Failed     uint64 // answered with an error

	Unlocked   uint64 // released by their holders
	Forced     uint64 // released by FORCE, or the admin page
	Disconnect uint64 // released since the holder's connection had closed
	Expired    uint64 // of the locks taken here, those whose time passed with no release seen here
	Lost       uint64 // session locks that could not be renewed in time, or were taken away
	Fenced     uint64 // FENCEs that were refused with FENCED

	Foreign foreign.Counts // locks of foreign clients that pass by

	Waiters int // clients that wait now
	// OldestWait is for how long the one of them has waited that has waited longest.
	OldestWait time.Duration
	Queues     int // locks that they wait for
	Holding    int // locks that were taken here and have not been seen to end
}

// counters is Stats as it grows.
type counters struct {
	acquired, handedOver, renewed, held, overtime, gone, failed atomic.Uint64
	unlocked, forced, disconnect, expired, lost, fenced         atomic.Uint64
}

// Stats returns what has happened so far.
func (l *Locks) Stats() Stats {
	holding := l.registry.sweep(monotonic.Now())
	l.mu.Lock()
	lines := len(l.queues)
	oldest := time.Now()
	now := oldest
	for _, q := range l.queues {
		if first := q.first(); first != nil && first.joined.Before(oldest) {
			oldest = first.joined
		}
	}
	l.mu.Unlock()
	t := &l.counters
	return Stats{
		Acquired: t.acquired.Load(), HandedOver: t.handedOver.Load(), Renewed: t.renewed.Load(),
		Held: t.held.Load(), Overtime: t.overtime.Load(),
		Gone: t.gone.Load(), Failed: t.failed.Load(),
		Unlocked: t.unlocked.Load(), Forced: t.forced.Load(), Disconnect: t.disconnect.Load(),
		Expired: t.expired.Load(), Lost: t.lost.Load(), Fenced: t.fenced.Load(),
		Foreign: l.foreignLocks.Counts(time.Now()),
		Waiters: int(l.waiters.Load()), OldestWait: now.Sub(oldest),
		Queues: lines, Holding: holding,
	}
}

// setObserver is called once, by New.
func (l *Locks) setObserver(by Observer) {
	l.observer, l.registry = by, newRegistry(&l.counters.expired)
	l.registry.onExpired = func(lock *heldLock) {
		l.journalEnd(journal.Expired, lock, lock.until.Load())
	}
	if by == nil {
		l.observer = noObserver{}
	}
}

// observeAcquired is for a LOCK that is answered with the token of an attempt.
func (l *Locks) observeAcquired(lock *heldLock, a attempt) {
	if a.renewed {
		l.counters.renewed.Add(1)
	} else {
		l.counters.acquired.Add(1)
	}
	l.registry.put(lock)
	if !a.renewed {
		l.journal.Acquired(journal.Lock(lock.id()), lock.holder(), a.waited, monotonic.Now())
	}
}

// observeRefused is for a LOCK without WAIT that got nothing.
func (l *Locks) observeRefused(id LockID, err error) {
	if err != nil {
		l.counters.failed.Add(1)
	} else {
		l.counters.held.Add(1)
		l.journal.Refused(journal.Lock(id), monotonic.Now())
	}
}

// observeWaited is for a LOCK with WAIT that has ended.
func (l *Locks) observeWaited(w *waiter, won bool, err error) {
	switch {
	case err == ErrGone:
		l.counters.gone.Add(1)
		return
	case won:
	case err != nil:
		l.counters.failed.Add(1)
		return
	default:
		l.counters.overtime.Add(1)
	}
	l.observer.LockWaited(time.Since(w.joined), won)
}

// observeRelease is for a release that has been answered, before the next holder is.
func (l *Locks) observeRelease(r *unlockRun, v resp.Value, answer []int64, err error) {
	released, p := err == nil && answer[0] == 1, r.proof
	if p.kind == "force" {
		l.auditForce(r, v, released, err)
	}
	if !released {
		return
	}
	if answer[1] != 0 {
		l.counters.handedOver.Add(1)
	}
	token := int64(0)
	if len(answer) > 3 {
		token = answer[3]
	}
	_, asked := r.on.(Session)
	if p.kind == "request" || p.kind == "reserved" || p.kind == "given" && asked {
		return // no client was given the lock
	}
	_, forced := r.on.(operatorConn)
	kind := journal.Disconnected
	switch {
	case forced || p.kind == "force":
		l.counters.forced.Add(1)
		kind = journal.Forced
	case asked:
		l.counters.unlocked.Add(1)
		kind = journal.Released
	default:
		l.counters.disconnect.Add(1)
	}
	lock := l.registry.remove(r.id, p, token)
	if lock == nil {
		client := ""
		if len(v.Elems) > 4 {
			client = string(v.Elems[4].Text)
		}
		l.journalElsewhere(kind, r.id, token, client)
		return
	}
	now := monotonic.Now()
	l.journalEnd(kind, lock, now)
	l.observer.LockHeld(time.Duration(now - lock.since))
	for _, session := range lock.sessionsBesides("") {
		l.lose(session, lossByRelease(r))
	}
	if lock.by == nil {
		lock.until.Store(0)
	}
}
