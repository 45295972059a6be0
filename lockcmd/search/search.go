package search

import (
	"context"
	"slices"
	"time"

	"lockproxy/internal/names"
	"lockproxy/lockcmd/deadlock"
	"lockproxy/lockcmd/queue"
)

// Watch searches for deadlocks of a wait until end is called.
func (d *Deadlocks) Watch(w *queue.Wait) (end func()) {
	if d.off() {
		return func() {}
	}
	d.login(w.As) // others can wait behind one without an owner, and ask for it
	if w.Lead.Owner == "" || tooLong(w) {
		return func() {}
	}
	v := newWatchedWait(w)
	v.next = time.Now().Add(firstSearch)
	d.mu.Lock()
	d.of[v.owner] = append(d.of[v.owner], v)
	if !d.ticking {
		d.ticking = true
		d.Timers.After(searchTick, d.tick)
	}
	d.mu.Unlock()
	known := d.newSearch([]*watchedWait{v}, d.registered)
	if known.here(); len(known.graph.ClosedBy(idsOf(known.seeds))) > 0 {
		d.Timers.After(0, func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, searchTimeout)
			defer cancel()
			d.confirm(ctx, known, known.seeds, false)
		})
	}
	return func() { d.unwatch(v) }
}

// login is the login of an identity, whose messages this proxy reads from now on.
func (d *Deadlocks) login(as names.Identity) *login {
	one, derive := d.logins.of(as)
	d.derive(derive)
	return one
}

// derive derives keys in the background if that is wanted.
func (d *Deadlocks) derive(wanted bool) {
	if wanted {
		d.Timers.After(0, d.deriveAll)
	}
}

func (d *Deadlocks) deriveAll(ctx context.Context) {
	if again := d.logins.deriveAll(ctx); again > 0 {
		d.Timers.After(again, d.deriveAll)
	}
}

func (d *Deadlocks) unwatch(v *watchedWait) {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := d.of[v.owner]
	if list = slices.DeleteFunc(list, func(o *watchedWait) bool { return o == v }); len(list) > 0 {
		d.of[v.owner] = list
	} else {
		delete(d.of, v.owner)
	}
}

// tick searches from the waits that are due. It is called again as long as there are any waits.
func (d *Deadlocks) tick(context.Context) {
	var due []*watchedWait
	keys := 0
	d.mu.Lock()
	if d.ticking = len(d.of) > 0; d.ticking {
		d.Timers.After(searchTick, d.tick)
	}
	now := time.Now()
	for _, list := range d.of {
		for _, v := range list {
			if now.Before(v.next) || keys+len(v.Waiters) > maxSearch {
				continue
			}
			keys += len(v.Waiters)
			due = append(due, v)
			pause := nextSearch
			if now.Sub(v.Joined) < youngWait {
				pause = firstSearch
			}
			v.next = now.Add(pause + 4*d.Clients.Ways.RoundTrip(v.Lead.Key))
		}
	}
	d.mu.Unlock()
	for _, list := range d.byPart(due) {
		d.Timers.After(0, func(ctx context.Context) { d.search(ctx, list) })
	}
}

// byPart divides waits by where their locks are in a cluster: so a node that does not answer holds
// up no search for the locks of others.
func (d *Deadlocks) byPart(list []*watchedWait) map[uint16][]*watchedWait {
	parts := map[uint16][]*watchedWait{}
	for _, v := range list {
		part := d.Clients.PartOf(v.Lead.Key)
		parts[part] = append(parts[part], v)
	}
	return parts
}

// search finds the deadlocks that waits have closed, here and elsewhere.
func (d *Deadlocks) search(ctx context.Context, due []*watchedWait) {
	ctx, cancel := context.WithTimeout(ctx, searchTimeout)
	defer cancel()
	known := d.newSearch(due, d.registered)
	known.here()
	first := d.newSearch(due, d.held)
	first.followAll(known.followed) // in one round trip
	var suspects []*watchedWait
	first.follow(ctx, true, func(g deadlock.Graph) bool {
		closed := g.ClosedBy(idsOf(due))
		suspects = slices.DeleteFunc(slices.Clone(due), func(v *watchedWait) bool {
			return closed[v.id] == nil
		})
		return len(suspects) > 0
	})
	d.confirm(ctx, first, suspects, true)
}

// confirm searches again from suspects, and refuses those that close a cycle of what an earlier
// search has found. elsewhere asks other proxies, too.
func (d *Deadlocks) confirm(
	ctx context.Context, before *deadlockSearch, suspects []*watchedWait, elsewhere bool,
) {
	var g deadlock.Graph
	var of map[string]names.Identity
	for tries := 0; len(suspects) > 0 && tries < maxConfirm; tries++ {
		confirmed := false
		again := d.newSearch(suspects, d.held)
		again.records = d.readSoon(before.claims)
		again.followAll(before.followed)
		again.follow(ctx, elsewhere, func(later deadlock.Graph) bool {
			g = before.graph.Both(later)
			confirmed = len(g.ClosedBy(idsOf(suspects))) > 0
			return confirmed
		})
		if of = again.waitLogins; confirmed {
			break
		}
	}
	for _, v := range suspects {
		cycle := g.ClosedBy([]string{v.id})[v.id]
		if cycle != nil && d.found(v, cycle, of) {
			delete(g, v.id) // its other cycles are over, too
		}
	}
}

// found refuses v, which closes a deadlock. It reports whether v was still waiting.
// of are the logins of the waits.
func (d *Deadlocks) found(
	v *watchedWait, cycle []deadlock.Step, of map[string]names.Identity,
) bool {
	lead, all := v.Lead, deadlock.NewError(cycle)
	err := deadlock.NewError(d.readable(v.As, cycle, of))
	waits := false
	if d.mode == Log {
		waits = lead.State().Waits
	} else {
		waits = v.Refuse(err)
	}
	now, key := time.Now(), err.Key()
	d.mu.Lock()
	if !waits || v.found {
		d.mu.Unlock()
		return false
	}
	v.found = true
	v.next = now.AddDate(100, 0, 0) // to log it once is enough
	d.recent = append(d.recent[max(len(d.recent)-maxRecent+1, 0):],
		Deadlock{now, names.Lock{DB: lead.As.DB, Key: key}, lead.Owner, lead.Client,
			all.Describe()})
	d.mu.Unlock()
	d.onFound()
	d.Log.Warn("deadlock between owners", "key", key, "owner", lead.Owner, "client", lead.Client,
		"refused", d.mode != Log, "cycle", all.Describe())
	return true
}
