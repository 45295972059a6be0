package search

import (
	"maps"
	"math"
	"slices"

	"lockproxy/internal/names"
	"lockproxy/lockcmd/deadlock"
	"lockproxy/lockcmd/queue"
)

// maxDatabases bounds the databases of a search that only other proxies name.
const maxDatabases = 4

// deadlockSearch follows waits to those that they wait for, as long as these wait, too.
type deadlockSearch struct {
	*Deadlocks
	read    func([]lockAs) map[lockAs]*holding // who has locks
	records map[lockAs]*holding
	// since is the number since which waits at other proxies must have lasted. never says that none
	// count.
	since int64

	graph     deadlock.Graph
	waits     map[string]*wait // in graph, or in next, by key
	next      []*wait          // not in graph yet
	keys      int              // of waits
	databases map[int]bool     // of waits at other proxies
	missing   bool             // others have not told since of all the waits to which it came
}

const never = math.MaxInt64

// newSearch begins a search from waits here.
func (d *Deadlocks) newSearch(
	from []*queue.Wait, read func([]lockAs) map[lockAs]*holding, since int64,
) *deadlockSearch {
	l := &deadlockSearch{Deadlocks: d, read: read, records: map[lockAs]*holding{}, since: since,
		graph: deadlock.Graph{}, waits: map[string]*wait{}, databases: map[int]bool{}}
	l.addHere(from)
	return l
}

// add has the search follow a wait.
func (l *deadlockSearch) add(w *wait) {
	if l.waits[w.key] != nil || l.keys+len(w.Keys) > maxSearch {
		return
	}
	if w.here == nil && !l.databases[w.DB] {
		if len(l.databases) >= maxDatabases {
			return
		}
		l.databases[w.DB] = true
	}
	l.waits[w.key] = w
	l.keys += len(w.Keys)
	l.next = append(l.next, w)
}

// addHere has the search follow waits at this proxy.
func (l *deadlockSearch) addHere(list []*queue.Wait) {
	for _, one := range list {
		if w, ok := l.here(one); ok && !tooLong(&w.Wait) {
			l.add(w)
		}
	}
}

// addParty has the search follow the waits that are a party.
func (l *deadlockSearch) addParty(party any) {
	switch party := party.(type) {
	case deadlock.Place:
		if party.Proxy == l.Scripts.Proxy {
			l.addHere(l.queues.Of(names.Lock{DB: party.DB, Key: string(party.Key)}).At(party.As))
			return
		}
	case deadlock.Binary:
		l.addHere(l.waitsOf(party))
	}
	if l.since == never {
		return
	}
	for _, w := range l.toldOf(party) {
		if w.answers >= l.since {
			l.add(w)
		} else {
			l.missing = true
		}
	}
}

// walk goes as far as what is known leads.
func (l *deadlockSearch) walk() {
	known := map[any]bool{}
	for len(l.next) > 0 {
		list := l.next
		l.next = nil
		l.readAll(list)
		for _, w := range list {
			linked := l.link(w)
			l.graph[w.key] = linked
			for _, party := range linked.WaitsFor() {
				if !known[party] {
					known[party] = true
					l.addParty(party)
				}
			}
		}
	}
}

// readAll reads the records of the locks that waits are for, once.
func (l *deadlockSearch) readAll(list []*wait) {
	var locks []lockAs
	for _, w := range list {
		for _, k := range w.Keys {
			if lock := (lockAs{w.as, string(k.Key)}); l.records[lock] == nil {
				locks = append(locks, lock)
			}
		}
	}
	maps.Copy(l.records, l.read(locks))
}

// link returns a wait with what it waits for: as the records of its locks tell, which are read as its
// client, by a script that needs the right to write. So another proxy's word makes nobody wait for a
// lock for which that client could not wait, or where the proxy is not listed as one that has
// waiters. A waiter here whose owner has the lock already is woken to check that.
func (l *deadlockSearch) link(w *wait) deadlock.Wait {
	linked, holders := w.Wait, 0
	linked.Keys = nil
	for _, k := range w.Keys {
		h := l.recordOf(w, k)
		switch {
		case w.here == nil && !h.lists(w.Proxy):
			k.As = nil
		case l.ownerHolds(w, k): // it need not wait for earlier waits either
			if w.here != nil {
				w.here.OwnerMayHold()
			}
		default:
			if k.Enough = max(k.Enough, 1); !h.shared {
				k.Enough = 1
			}
			if k.Behind != "" {
				k.Before = append(k.Before, deadlock.Earlier{Proxy: w.Proxy, As: k.Behind})
			}
			k.Before = append(k.Before, h.before(w.Proxy, k.AllSince)...)
			for _, by := range h.by {
				if by.Owner != "" && len(by.Owner) <= maxWaitName && holders < maxBlockers {
					k.Holders = append(k.Holders, by)
					holders++
				}
			}
		}
		linked.Keys = append(linked.Keys, k)
	}
	return linked
}

func (l *deadlockSearch) recordOf(w *wait, k deadlock.KeyWait) *holding {
	return l.records[lockAs{w.as, string(k.Key)}]
}

// ownerHolds reports whether the owner of w has one of its locks already, so that w is given it,
// too. The owner has one already if another request of its own was delivered late. A shared lock it
// gets only as shared; LOCKALL gets all its locks again, or none.
func (l *deadlockSearch) ownerHolds(w *wait, k deadlock.KeyWait) bool {
	h := l.recordOf(w, k)
	return w.Owner != "" && slices.ContainsFunc(h.by, func(by deadlock.Holder) bool {
		switch {
		case by.Owner != w.Owner:
			return false
		case !w.All:
			return k.Shared || !h.shared
		}
		return !slices.ContainsFunc(w.Keys, func(k deadlock.KeyWait) bool {
			h := l.recordOf(w, k)
			return h.shared || !slices.Contains(h.by, by)
		})
	})
}
