package search

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"lockproxy/internal/names"
	"lockproxy/lockcmd/background"
	"lockproxy/lockcmd/deadlock"
	"lockproxy/lockcmd/held"
	"lockproxy/lockcmd/queue"
)

// The values of Config.Deadlock. "" is DeadlockRefuse.
const (
	Refuse = "refuse" // its youngest wait is answered DEADLOCK
	Log    = "log"    // it is logged and counted
	Off    = "off"    // it is not searched for
)

const (
	// A search starts from a wait that has lasted for firstSearch, and again after each of these
	// until youngWait, since messages between proxies can be lost. Then it starts after each
	// nextSearch: most deadlocks are closed by a wait that begins. Where the upstream is far, as
	// long as a search takes is added.
	firstSearch   = 300 * time.Millisecond
	youngWait     = 2 * time.Second
	nextSearch    = 500 * time.Millisecond
	searchTick    = 100 * time.Millisecond
	searchTimeout = 30 * time.Second // also where each proxy is 500 ms from the upstream
	maxConfirm    = 3                // second searches for an apparent cycle: an answer can be lost
	maxSearch     = 256              // awaited keys from which a search starts, or that it finds
	maxWaitName   = 1024             // bytes of a key or an owner, beyond which a wait is not searched
	maxBlockers   = 128              // holders that a search follows, for one wait
)

// Deadlocks finds cycles of owners that wait for each other's locks.
//
// A new wait is checked at once against what this proxy knows: the waits here, and the registry. If
// a wait lasts, a search starts in the background. It asks the upstream who has the lock and who
// asked for it earlier, and the other proxies whether those wait there. An apparent cycle counts
// only if a search that begins after it was found finds the same waits and tokens: so all of the
// cycle existed at one time, since a lock that is lost is never held again with the same token. The
// proxy of the youngest wait finds the cycle, and refuses that wait.
type Deadlocks struct {
	*background.Jobs
	mode   string // Refuse, Log or Off
	queues *queue.Queues
	locks  *held.Registry
	// onFound notes a deadlock.
	onFound func()

	answering atomic.Int32 // questions from other proxies that are being answered

	mu       sync.Mutex
	of       map[string][]*watchedWait       // guarded by mu; by owner; no list is empty
	last     int64                           // guarded by mu; the id of the last question
	ticking  bool                            // guarded by mu
	searches map[string]chan []deadlock.Wait // guarded by mu; where answers go, by question
	asked    askedBefore                     // guarded by mu; questions that have come
	recent   []Deadlock                      // guarded by mu; the last ones, the oldest first
}

// Deadlock is one that this proxy has found.
type Deadlock struct {
	When          time.Time
	names.Lock           // that its youngest wait is for
	Owner, Client string // of the youngest wait
	Cycle         string // all its owners and keys
}

// maxRecent bounds the deadlocks that are remembered.
const maxRecent = 20

// watchedWait is a LOCK or LOCKALL that waits.
type watchedWait struct {
	*queue.Wait
	id    string
	since int64
	next  time.Time // when a search starts from it; guarded by Deadlocks.mu
	found bool      // it closes a deadlock; guarded by Deadlocks.mu
}

func newWatchedWait(w *queue.Wait) *watchedWait {
	return &watchedWait{Wait: w, id: w.RequestID(), since: w.Joined.UnixNano()}
}

// idsOf are the IDs of waits.
func idsOf(list []*watchedWait) (ids []string) {
	for _, v := range list {
		ids = append(ids, v.id)
	}
	return ids
}

func New(
	bg *background.Jobs, mode string, qs *queue.Queues, locks *held.Registry, onFound func(),
) *Deadlocks {
	return &Deadlocks{
		Jobs: bg, mode: mode, queues: qs, locks: locks, onFound: onFound,
		of: map[string][]*watchedWait{}, searches: map[string]chan []deadlock.Wait{},
	}
}

func (d *Deadlocks) off() bool { return d.mode == Off }

// Watch searches for deadlocks of a wait until end is called.
func (d *Deadlocks) Watch(w *queue.Wait) (end func()) {
	if w.Lead.Owner == "" || d.off() || tooLong(w) {
		return func() {}
	}
	d.mu.Lock()
	v := newWatchedWait(w)
	v.next = time.Now().Add(firstSearch)
	owner := v.Lead.Owner
	d.of[owner] = append(d.of[owner], v)
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

// tooLong reports whether a key or an owner is too long for messages.
func tooLong(w *queue.Wait) bool {
	return slices.ContainsFunc(w.Waiters, func(w *queue.Waiter) bool {
		return len(w.Owner) > maxWaitName || len(w.Key) > maxWaitName
	})
}

func (d *Deadlocks) unwatch(v *watchedWait) {
	d.mu.Lock()
	defer d.mu.Unlock()
	owner := v.Lead.Owner
	list := d.of[owner]
	if list = slices.DeleteFunc(list, func(o *watchedWait) bool { return o == v }); len(list) > 0 {
		d.of[owner] = list
	} else {
		delete(d.of, owner)
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
	for tries := 0; len(suspects) > 0 && tries < maxConfirm; tries++ {
		confirmed := false
		again := d.newSearch(suspects, d.held)
		again.followAll(before.followed)
		again.follow(ctx, elsewhere, func(later deadlock.Graph) bool {
			g = before.graph.Both(later)
			confirmed = len(g.ClosedBy(idsOf(suspects))) > 0
			return confirmed
		})
		if confirmed {
			break
		}
	}
	for _, v := range suspects {
		cycle := g.ClosedBy([]string{v.id})[v.id]
		if cycle != nil && d.found(v, deadlock.NewError(cycle)) {
			delete(g, v.id) // its other cycles are over, too
		}
	}
}

// found refuses v, which closes a deadlock. It reports whether v was still waiting.
func (d *Deadlocks) found(v *watchedWait, err deadlock.Error) bool {
	lead := v.Lead
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
			err.Describe()})
	d.mu.Unlock()
	d.onFound()
	d.Log.Warn("deadlock between owners", "key", key, "owner", lead.Owner, "client", lead.Client,
		"refused", d.mode != Log, "cycle", err.Describe())
	return true
}

// Found returns the last ones that this proxy has found since a time, the newest first.
func (d *Deadlocks) Found(since time.Time) []Deadlock {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := slices.DeleteFunc(slices.Clone(d.recent), func(one Deadlock) bool {
		return one.When.Before(since)
	})
	slices.Reverse(list)
	return list
}

// waitsOf returns the waits here of some owners.
func (d *Deadlocks) waitsOf(owners []deadlock.Binary) (list []*watchedWait) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, owner := range owners {
		list = append(list, d.of[string(owner)]...)
	}
	return list[:min(len(list), maxSearch)]
}
