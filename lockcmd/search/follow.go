package search

import (
	"context"
	"slices"
	"time"

	"lockproxy/internal/loopguard"
	"lockproxy/internal/names"
	"lockproxy/lockcmd/deadlock"
	"lockproxy/lockcmd/queue"
)

const (
	// answerWithin is how long a search waits for others to answer. Most have nothing to say. The
	// question, the look-up and the answer take three round trips, up to a second each, and more
	// where connections must be opened first.
	answerWithin = 3500 * time.Millisecond
	// maxDatabases bounds the databases of a search that only claims name.
	maxDatabases = 4
)

// deadlockSearch follows waits to those that they wait for, as long as these wait, too.
type deadlockSearch struct {
	*Deadlocks
	seeds    []*watchedWait
	holders  func([]*watchedWait) map[*queue.Waiter]*holding
	graph    deadlock.Graph
	keys     int               // in graph
	toFollow []*watchedWait    // waits here, not in graph yet
	followed []*watchedWait    // all waits here that it has begun to follow
	known    map[string]bool   // waits here that it has followed, by id
	wanted   map[any]bool      // owners and places that it has searched
	owners   []deadlock.Binary // that do not wait here, and are not asked for yet
	places   []deadlock.Place  // at other proxies, not asked for yet
	missing  map[any]bool      // asked for, and not answered

	claims    []claim
	claimed   int          // keys in claims
	databases map[int]bool // that claims name
	// records are those of the keys of claims that an earlier search has heard. They are read while
	// this one waits for answers. It is nil if claims count as they are.
	records func() map[lockAs]*holding

	waitLogins map[string]names.Identity // of the waits in graph, by id
}

func (d *Deadlocks) newSearch(
	seeds []*watchedWait, holders func([]*watchedWait) map[*queue.Waiter]*holding,
) *deadlockSearch {
	l := &deadlockSearch{Deadlocks: d, seeds: seeds, holders: holders, graph: deadlock.Graph{},
		known: map[string]bool{}, wanted: map[any]bool{}, missing: map[any]bool{},
		databases: map[int]bool{}, waitLogins: map[string]names.Identity{}}
	l.followAll(seeds)
	return l
}

func (l *deadlockSearch) followAll(list []*watchedWait) {
	for _, v := range list {
		if !l.known[v.id] {
			l.known[v.id] = true
			l.toFollow = append(l.toFollow, v)
			l.followed = append(l.followed, v)
		}
	}
}

// believe adds a claim, and those that have come since.
func (l *deadlockSearch) believe(c claim, others <-chan claim) {
	list := []claim{c}
	for more := true; more; {
		select {
		case c := <-others:
			list = append(list, c)
		default:
			more = false
		}
	}
	list = slices.DeleteFunc(list, func(c claim) bool { return !l.isNew(c) })
	if l.records != nil {
		l.vouch(list, l.records())
	}
	for _, c := range list {
		l.add(c.wait)
	}
}

// isNew notes a claim. It returns false if it has come before, as each does by several channels, or
// if there are too many.
func (l *deadlockSearch) isNew(c claim) bool {
	_, known := l.waitLogins[c.wait.ID]
	// Each costs a look at the record of each of its keys.
	if known || len(l.claims) >= maxSearch || l.claimed+len(c.wait.Keys) > maxSearch {
		return false
	}
	if !l.databases[c.as.DB] && len(l.databases) >= maxDatabases {
		return false
	}
	l.databases[c.as.DB] = true
	l.claimed += len(c.wait.Keys)
	l.waitLogins[c.wait.ID] = l.logins.loginOf(c.as)
	l.claims = append(l.claims, c)
	return true
}

// add adds waits, and follows them to waits here.
func (l *deadlockSearch) add(list ...deadlock.Wait) {
	for _, w := range list {
		if l.keys+len(w.Keys) > maxSearch {
			return
		}
		l.keys += len(w.Keys) - len(l.graph[w.ID].Keys)
		l.graph[w.ID] = w
		for _, party := range w.Parties() {
			delete(l.missing, party)
		}
		for _, k := range w.Keys {
			for _, h := range k.Holders {
				l.want(h.Owner)
			}
			for _, e := range k.Before {
				l.want(w.Place(k, e))
			}
		}
	}
}

// want searches for an owner, or the wait at a place.
func (l *deadlockSearch) want(party any) {
	if l.wanted[party] {
		return
	}
	l.wanted[party] = true
	switch party := party.(type) {
	case deadlock.Binary:
		here := l.waitsOf([]string{hash("owner", string(party))})
		l.followAll(here)
		if len(here) == 0 {
			l.owners = append(l.owners, party)
		}
	case deadlock.Place:
		if party.Proxy != l.Scripts.Proxy {
			l.places = append(l.places, party)
		} else if v := l.waitAt(party); v != nil {
			l.followAll([]*watchedWait{v})
		}
	}
}

// here follows the waits at this proxy.
func (l *deadlockSearch) here() {
	for len(l.toFollow) > 0 && l.keys < maxSearch {
		list := l.toFollow
		l.toFollow = nil
		of := l.holders(list)
		for _, v := range list {
			if w, ok := l.waitOf(v, of); ok {
				l.waitLogins[v.id] = l.logins.loginOf(v.As)
				l.add(w)
			}
		}
	}
}

// askOthers asks other proxies for owners and places that are not here.
func (l *deadlockSearch) askOthers(id string) {
	for len(l.owners)+len(l.places) > 0 {
		m := message{ID: id}
		var owners []deadlock.Binary
		var places []deadlock.Place
		owners, l.owners = cut(l.owners)
		places, l.places = cut(l.places)
		for _, owner := range owners {
			l.missing[owner] = true
			m.Owners = append(m.Owners, hash("owner", string(owner)))
		}
		for _, at := range places {
			l.missing[at] = true
		}
		l.tell(l.seeds[0].As, m, places)
	}
}

// cut returns the part of a list that fits into a question, and the rest.
func cut[T any](list []T) (part, rest []T) {
	n := min(len(list), maxAsked)
	return list[:n], list[n:]
}

// follow searches until all waits are known, or done reports true. elsewhere asks other proxies,
// too.
func (l *deadlockSearch) follow(
	ctx context.Context, elsewhere bool, done func(deadlock.Graph) bool,
) {
	loopguard.MayWait()
	id, answers := l.expectAnswers()
	defer l.forgetAnswers(id)
	for {
		l.here()
		if done(l.graph) || !elsewhere {
			return
		}
		l.askOthers(id)
		if len(l.missing) == 0 {
			return
		}
		select {
		case c := <-answers:
			l.believe(c, answers)
		case <-time.After(answerWithin + 4*l.Clients.Ways.Farthest()):
			return
		case <-ctx.Done():
			return
		}
	}
}
