package search

import (
	"slices"
	"time"

	"lockproxy/internal/names"
	"lockproxy/lockcmd/deadlock"
	"lockproxy/lockcmd/queue"
)

// wait is a LOCK or LOCKALL that waits, here or at another proxy. Its holders are not known yet.
type wait struct {
	deadlock.Wait
	key  string         // in graphs
	as   names.Identity // in the database of the wait
	here *queue.Wait    // nil if it is at another proxy

	// Told by another proxy:
	number  int64     // of the message
	answers int64     // the last question of this proxy that a message with the wait has answered
	at      time.Time // when it came
	size    int       // its part of the message, bytes
	by      string    // the seal
}

const (
	// toldFor is for how long a wait counts that another proxy no longer tells of. Messages can be
	// lost, and where very many wait each is told of more seldom.
	toldFor = 5 * time.Second
	// maxTold bounds what is remembered of the waits of one login, in bytes of messages.
	maxTold = 1 << 20
	// maxNames bounds the names of a wait in places: see queue.Queue.At.
	maxNames = 4
)

// told are the waits that other proxies tell of. Deadlocks.mu guards it.
type told struct {
	waits map[string]*wait           // by their keys
	as    map[any]map[*wait]struct{} // by what others wait for; no set is empty
	size  map[string]int             // of those by each seal
	swept time.Time
}

func newTold() told {
	return told{waits: map[string]*wait{}, as: map[any]map[*wait]struct{}{}, size: map[string]int{}}
}

// add notes a wait, unless a later message has told of it. Made-up waits of a login crowd out those
// of that login only.
func (t *told) add(w *wait) {
	if w.at.Sub(t.swept) >= toldFor {
		t.swept = w.at
		for _, old := range t.waits {
			if w.at.Sub(old.at) >= toldFor {
				t.remove(old)
			}
		}
	}
	if old := t.waits[w.key]; old != nil {
		if old.number >= w.number {
			return // each comes by several channels
		}
		w.answers = max(w.answers, old.answers)
		t.remove(old)
	}
	if t.size[w.by]+w.size > maxTold {
		return
	}
	t.size[w.by] += w.size
	t.waits[w.key] = w
	for _, party := range w.Parties() {
		if t.as[party] == nil {
			t.as[party] = map[*wait]struct{}{}
		}
		t.as[party][w] = struct{}{}
	}
}

func (t *told) remove(w *wait) {
	delete(t.waits, w.key)
	if t.size[w.by] -= w.size; t.size[w.by] == 0 {
		delete(t.size, w.by)
	}
	for _, party := range w.Parties() {
		delete(t.as[party], w)
		if len(t.as[party]) == 0 {
			delete(t.as, party)
		}
	}
}

// toldOf are the waits that are a party, as others tell.
func (d *Deadlocks) toldOf(party any) (list []*wait) {
	now := clock()
	d.mu.Lock()
	defer d.mu.Unlock()
	for w := range d.told.as[party] {
		if now.Sub(w.at) < toldFor {
			list = append(list, w)
		}
	}
	return list
}

// newsLater is closed when something is told from now on.
func (d *Deadlocks) newsLater() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.news
}

// here is a wait at this proxy. ok is false if it has ended.
func (d *Deadlocks) here(one *queue.Wait) (w *wait, ok bool) {
	id := one.RequestID()
	w = &wait{key: id, as: one.As, here: one, Wait: deadlock.Wait{ID: id, Proxy: d.Scripts.Proxy,
		Owner: deadlock.Binary(one.Lead.Owner), DB: one.As.DB, Since: one.Joined.UnixNano(),
		All: one.Lead.IsAll}}
	w.Keys, ok = one.Standings()
	return w, ok
}

// tooLong reports whether a name in a wait is too long for messages.
func tooLong(w *deadlock.Wait) bool {
	return len(w.Owner) > maxWaitName || slices.ContainsFunc(w.Keys, func(k deadlock.KeyWait) bool {
		return len(k.Key) > maxWaitName || len(k.Behind) > maxWaitName || len(k.As) > maxNames ||
			slices.ContainsFunc(k.As, func(as string) bool { return len(as) > maxWaitName })
	})
}
