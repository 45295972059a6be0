package search

import (
	"context"
	"maps"
	"slices"
	"time"

	"lockproxy/internal/loopguard"
	"lockproxy/internal/names"
	"lockproxy/lockcmd/deadlock"
	"lockproxy/lockcmd/queue"
)

// answerWithin is how long a search waits for others to answer. A question and its answer take two
// round trips, up to a second each, and more where connections must be opened first.
const answerWithin = 3500 * time.Millisecond

// Watch searches for deadlocks of a wait until end is called.
func (d *Deadlocks) Watch(w *queue.Wait) (end func()) {
	if d.off() {
		return func() {}
	}
	d.logins.of(w.As) // others can wait behind one without an owner
	if w.Lead.Owner == "" {
		return func() {}
	}
	one, ok := d.here(w)
	if !ok || tooLong(&one.Wait) {
		return func() {}
	}
	d.mu.Lock()
	d.watched[w] = &watchedWait{id: one.ID, next: clock().Add(firstSearch)}
	d.of[one.Owner] = append(d.of[one.Owner], w)
	d.tickLocked()
	d.mu.Unlock()
	from := []*queue.Wait{w}
	known := d.newSearch(from, d.registered, never)
	if known.walk(); len(known.graph.ClosedBy(idsOf(from))) > 0 {
		d.Timers.After(0, func(ctx context.Context) { d.confirm(ctx, known, from) })
	}
	return func() { d.unwatch(w) }
}

func (d *Deadlocks) unwatch(w *queue.Wait) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.watched, w)
	owner := deadlock.Binary(w.Lead.Owner)
	list := slices.DeleteFunc(d.of[owner], func(o *queue.Wait) bool { return o == w })
	if d.of[owner] = list; len(list) == 0 {
		delete(d.of, owner)
	}
}

// watchBefore has the waits without an owner told that w, a wait here or elsewhere, waits behind. They
// are told for as long as w is.
func (d *Deadlocks) watchBefore(w *deadlock.Wait) {
	for _, k := range w.Keys {
		q := d.queues.Of(names.Lock{DB: w.DB, Key: string(k.Key)})
		for _, as := range []string{"", k.Behind} {
			for _, one := range q.At(as) {
				if one.Lead.Owner == "" {
					d.watchUntil(one, clock().Add(toldFor))
				}
			}
		}
	}
}

func (d *Deadlocks) watchUntil(w *queue.Wait, until time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	v := d.watched[w]
	if v == nil {
		v = &watchedWait{id: w.RequestID()}
		d.watched[w] = v
	}
	v.until = until
	d.tickLocked()
}

// waitsOf returns the waits here of an owner.
func (d *Deadlocks) waitsOf(owner deadlock.Binary) []*queue.Wait {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := d.of[owner]
	return slices.Clone(list[:min(len(list), maxSearch)])
}

// tickLocked has tick run soon, and again as long as there is anything to do. mu is held.
func (d *Deadlocks) tickLocked() {
	if !d.ticking && len(d.watched)+len(d.asked) > 0 {
		d.ticking = true
		d.Timers.After(searchTick, d.tick)
	}
}

// tick tells of the waits that are due, or are asked for, and searches from those that are due.
func (d *Deadlocks) tick(context.Context) {
	tell, due, asked := d.due(clock())
	waits := map[names.Identity][]*wait{}
	for _, one := range tell {
		if w, ok := d.here(one); !ok {
			d.unwatch(one)
		} else if !tooLong(&w.Wait) {
			login := d.logins.loginOf(one.As)
			waits[login] = append(waits[login], w)
			d.watchBefore(&w.Wait)
		}
	}
	for login, list := range waits {
		d.tellAll(login, list, asked[login])
	}
	for _, list := range d.byPart(due) {
		d.Timers.After(0, func(ctx context.Context) { d.search(ctx, list) })
	}
}

// due returns the waits to tell of, and to search from, and what is asked for, by login.
func (d *Deadlocks) due(now time.Time) (
	tell, due []*queue.Wait, asked map[names.Identity]*asking,
) {
	keys := map[bool]int{} // of those that are due, and others
	d.mu.Lock()
	defer d.mu.Unlock()
	for w, v := range d.watched {
		isDue, owned := !now.Before(v.next), w.Lead.Owner != ""
		switch {
		case !owned && now.After(v.until):
			delete(d.watched, w)
			continue
		case !isDue && (len(d.asked) == 0 || !d.asked[d.logins.loginOf(w.As)].has(v.id)),
			keys[isDue]+len(w.Waiters) > maxSearch:
			continue
		}
		keys[isDue] += len(w.Waiters)
		tell = append(tell, w)
		if !isDue {
			continue
		}
		if owned && !v.found {
			due = append(due, w)
		}
		if v.next = now.Add(firstSearch); now.Sub(w.Joined) >= youngWait {
			v.next = now.Truncate(nextSearch).Add(nextSearch) // several in one message
		}
	}
	asked, d.asked, d.ticking = d.asked, map[names.Identity]*asking{}, false
	d.tickLocked()
	return tell, due, asked
}

// byPart divides waits by where their locks are in a cluster: so a node that does not answer holds
// up no search for the locks of others.
func (d *Deadlocks) byPart(list []*queue.Wait) map[uint16][]*queue.Wait {
	parts := map[uint16][]*queue.Wait{}
	for _, w := range list {
		part := d.Clients.PartOf(w.Lead.Key)
		parts[part] = append(parts[part], w)
	}
	return parts
}

// idsOf are the IDs of waits here.
func idsOf(list []*queue.Wait) (ids []string) {
	for _, w := range list {
		ids = append(ids, w.RequestID())
	}
	return ids
}

// search finds the deadlocks that waits have closed, here and elsewhere.
func (d *Deadlocks) search(ctx context.Context, due []*queue.Wait) {
	known := d.newSearch(due, d.registered, never)
	known.walk()
	first := d.newSearch(due, d.held, 0)
	for _, w := range known.waits { // in one round trip
		first.add(w)
	}
	first.walk()
	closed := first.graph.ClosedBy(idsOf(due))
	suspects := slices.DeleteFunc(due, func(w *queue.Wait) bool { return closed[w.RequestID()] == nil })
	if len(suspects) > 0 {
		d.confirm(ctx, first, suspects)
	}
}

// confirm searches again from suspects, and refuses those that close a cycle of what an earlier
// search has found. Other proxies must tell of its waits again.
func (d *Deadlocks) confirm(ctx context.Context, before *deadlockSearch, suspects []*queue.Wait) {
	loopguard.MayWait()
	since := d.askAgain(before)
	over := time.After(answerWithin + 4*d.Clients.Ways.Farthest())
	records := d.held(slices.Collect(maps.Keys(before.records)))
	for {
		news := d.newsLater()
		again := d.newSearch(suspects, d.held, since)
		again.records = records
		again.walk()
		g := before.graph.Both(again.graph)
		for _, w := range suspects {
			id := w.RequestID()
			if cycle := g.ClosedBy([]string{id})[id]; cycle != nil && d.found(w, cycle, again.waits) {
				delete(g, id) // its other cycles are over, too
			}
		}
		if !again.missing {
			return
		}
		select {
		case <-news:
		case <-time.After(searchTick): // messages can be lost
			d.askAgain(before)
		case <-over:
			return
		case <-ctx.Done():
			return
		}
	}
}

// askAgain has others tell again of the waits to which a search has come. It returns the number since
// which these have lasted then.
func (d *Deadlocks) askAgain(before *deadlockSearch) (since int64) {
	if before.since == never {
		return never
	}
	since = d.nextNumber()
	ids := map[names.Identity][]string{}
	for _, w := range before.waits {
		if login := d.logins.loginOf(w.as); w.here == nil {
			ids[login] = append(ids[login], w.ID)
		}
	}
	for login, list := range ids {
		d.tell(login, telling{Again: list})
	}
	return since
}

// found refuses w, which closes a deadlock. It reports whether w was still waiting.
// of are the waits of the search.
func (d *Deadlocks) found(w *queue.Wait, cycle []deadlock.Step, of map[string]*wait) bool {
	lead, all := w.Lead, deadlock.NewError(cycle)
	err := deadlock.NewError(d.readable(w.As, cycle, of))
	waits := false
	if d.mode == Log {
		waits = lead.State().Waits
	} else {
		waits = w.Refuse(err)
	}
	now, key := time.Now(), err.Key()
	d.mu.Lock()
	v := d.watched[w]
	if !waits || v != nil && v.found {
		d.mu.Unlock()
		return false
	}
	if v != nil { // it is not watched any more once its command is told
		v.found = true // to log it once is enough
	}
	d.recent = append(d.recent[max(len(d.recent)-maxRecent+1, 0):],
		Deadlock{now, names.Lock{DB: lead.As.DB, Key: key}, lead.Owner, lead.Client,
			all.Describe()})
	d.mu.Unlock()
	d.onFound()
	d.Log.Warn("owners wait for each other in a cycle",
		"key", key, "owner", lead.Owner, "client", lead.Client,
		"refused", d.mode != Log, "cycle", all.Describe())
	return true
}
