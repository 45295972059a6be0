package lockcmd

import (
	"context"
	"time"

	"lockproxy/internal/journal"
	"lockproxy/internal/monotonic"
)

// What the journal is told. These hooks run within lock commands: they are short and never block.

func (lock *heldLock) holder() journal.Holder {
	return journal.Holder{Token: lock.token, Owner: lock.owner, Client: lock.client}
}

// journalEnd is for a lock that has ended.
func (l *Locks) journalEnd(kind journal.Kind, lock *heldLock, at int64) {
	l.journal.Ended(kind, journal.Lock(lock.id()), lock.holder(), lock.since, at)
}

// journalElsewhere is for a lock that was released here and that this proxy had not given.
func (l *Locks) journalElsewhere(kind journal.Kind, id LockID, token int64, client string) {
	now := monotonic.Now()
	l.journal.Ended(kind, journal.Lock(id), journal.Holder{Token: token, Client: client}, now, now)
}

// waitBegan is for a waiter that was not given the lock at once. waitEnded must follow.
func (l *Locks) waitBegan(w *waiter) {
	id := journal.Lock(w.id())
	l.journal.WaitBegan(id, monotonic.Of(w.joined), monotonic.Now())
	l.findHolder(w)
}

func (l *Locks) waitEnded(w *waiter) {
	id := journal.Lock(w.id())
	l.journal.WaitEnded(id, monotonic.Of(w.joined), monotonic.Now())
}

// findHolder asks the upstream, now and then, who has the lock that w waits for, if this proxy did
// not give it.
func (l *Locks) findHolder(w *waiter) {
	id, as := w.id(), w.as
	if !l.journal.WantsHolder(journal.Lock(id), monotonic.Now()) {
		return
	}
	l.timers.after(0, func(ctx context.Context) {
		on := l.background.on(ctx, as, id.Key, time.Now().Add(backgroundTimeout))
		v, err := l.ask(on, infoScript, id.Key)
		if err != nil || len(v.Elems) != len(infoFields) {
			return
		}
		holder := journal.Holder{Client: foreignHolder}
		if string(v.Elems[1].Text) == "lockproxy" {
			holder = journal.Holder{Token: v.Elems[2].Int, Owner: string(v.Elems[3].Text),
				Client: string(v.Elems[4].Text)}
		}
		l.journal.SetHolder(journal.Lock(id), holder, monotonic.Now())
	})
}

// foreignHolder stands for the holder of a foreign lock.
const foreignHolder = "a foreign client"

// Costs returns what locks that match have cost within a time, up to the last hour. It is in no
// order.
func (l *Locks) Costs(within time.Duration, match func(LockID) bool) []journal.Cost {
	l.registry.sweep(monotonic.Now())
	list := l.journal.Costs(within, monotonic.Now(), func(id *journal.Lock) bool {
		return match(LockID(*id))
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range list {
		if q := l.queues[LockID(list[i].Lock)]; q != nil && q.first() != nil {
			list[i].LongestWait = max(list[i].LongestWait, time.Since(q.first().joined))
		}
	}
	return list
}

// Event is one that this proxy has seen of a lock.
type Event struct {
	journal.Event
	When time.Time
}

// Events returns up to limit of the events of the last hour that match, newest first. more says
// that there are others.
func (l *Locks) Events(limit int, match func(LockID) bool) (list []Event, more bool) {
	l.registry.sweep(monotonic.Now())
	now, at := time.Now(), monotonic.Now()
	events, more := l.journal.Events(at-int64(journal.Window), limit, func(e *journal.Event) bool {
		return match(LockID(e.Lock))
	})
	for i := range events {
		list = append(list, Event{events[i], events[i].At(now, at)})
	}
	return list, more
}
