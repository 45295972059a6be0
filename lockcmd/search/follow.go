package search

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"lockproxy/internal/loopguard"
	"lockproxy/lockcmd/deadlock"
	"lockproxy/lockcmd/queue"
)

const (
	// answerWithin is how long a search waits for others to answer. Most have nothing to say. The
	// question, the look-up and the answer take three round trips, up to a second each, and more
	// where connections must be opened first.
	answerWithin  = 3500 * time.Millisecond
	maxAsked      = 64      // owners or places in a question
	maxMessage    = 1 << 19 // bytes of a message that is read
	maxAnswering  = 16      // questions that are answered at a time
	answersQueued = 64
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
}

func (d *Deadlocks) newSearch(
	seeds []*watchedWait, holders func([]*watchedWait) map[*queue.Waiter]*holding,
) *deadlockSearch {
	l := &deadlockSearch{Deadlocks: d, seeds: seeds, holders: holders, graph: deadlock.Graph{},
		known: map[string]bool{}, wanted: map[any]bool{}, missing: map[any]bool{}}
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
		here := l.waitsOf([]deadlock.Binary{party})
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
				l.add(w)
			}
		}
	}
}

// askOthers asks other proxies for owners and places that are not here.
func (l *deadlockSearch) askOthers(id string) {
	for len(l.owners)+len(l.places) > 0 {
		m := deadlock.Message{ID: id, Proxy: l.Scripts.Proxy}
		m.Owners, l.owners = cut(l.owners)
		m.Places, l.places = cut(l.places)
		for _, owner := range m.Owners {
			l.missing[owner] = true
		}
		for _, at := range m.Places {
			l.missing[at] = true
		}
		l.publish(l.seeds[0].As, m)
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
		case waits := <-answers:
			l.add(waits...)
		case <-time.After(answerWithin + 4*l.Clients.Ways.Farthest()):
			return
		case <-ctx.Done():
			return
		}
	}
}

// expectAnswers returns the id for a question, and the channel of its answers.
func (d *Deadlocks) expectAnswers() (id string, answers chan []deadlock.Wait) {
	answers = make(chan []deadlock.Wait, answersQueued)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last = max(d.last+1, time.Now().UnixNano())
	id = d.Scripts.Proxy + "-" + strconv.FormatInt(d.last, 10)
	d.searches[id] = answers
	return id, answers
}

func (d *Deadlocks) forgetAnswers(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.searches, id)
}

// OnMessage answers a question, or takes an answer to one of this proxy's.
func (d *Deadlocks) OnMessage(payload string) {
	var m deadlock.Message
	if d.off() || len(payload) > maxMessage || json.Unmarshal([]byte(payload), &m) != nil {
		return
	}
	if len(m.Waits) > 0 {
		d.mu.Lock()
		answers := d.searches[m.ID]
		d.mu.Unlock()
		select {
		case answers <- m.Waits:
		default: // no search waits for it, or there are too many
		}
		return
	}
	if m.Proxy == d.Scripts.Proxy || len(m.Owners) > maxAsked || len(m.Places) > maxAsked {
		return
	}
	if d.asked.again(payload) {
		return
	}
	list := d.waitsOf(m.Owners)
	for _, at := range m.Places {
		if at.Proxy != d.Scripts.Proxy {
			continue
		}
		if v := d.waitAt(at); v != nil {
			list = append(list, v)
		}
	}
	if len(list) == 0 || d.answering.Load() >= maxAnswering {
		return
	}
	d.answering.Add(1)
	d.Timers.After(0, func(context.Context) {
		defer d.answering.Add(-1)
		d.answer(m.ID, list)
	})
}

// answer tells the asking proxy of waits here.
func (d *Deadlocks) answer(id string, list []*watchedWait) {
	of := d.held(list)
	for _, v := range list {
		if w, ok := d.waitOf(v, of); ok {
			d.publish(v.As, deadlock.Message{
				ID: id, Proxy: d.Scripts.Proxy, Waits: []deadlock.Wait{w},
			})
		}
	}
}
