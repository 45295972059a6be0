package journal

import (
	"cmp"
	"slices"
	"time"

	"lockproxy/internal/names"
)

// Stack is how long clients of one name have waited for a lock while another had it.
type Stack struct {
	Waiter string
	names.Lock
	Holder string // "" is unknown
	Waits  int    // that ended with this holder, or go on
	Wait   time.Duration
}

// Waiting is a client that waits for a lock now.
type Waiting struct {
	names.Lock
	Holder       // without a token
	Since  int64 // as monotonic.Now
}

// maxStacks bounds the stacks; waiters and holders beyond are not told apart.
const maxStacks = 20000

// stackKey is what a Stack is for.
type stackKey struct {
	waiter string
	lock   names.Lock
	holder string
}

// openWait is a wait of which some part is not blamed on anybody yet.
type openWait struct {
	waiter   string
	from, to int64
	counted  bool // in Stack.Waits
}

// Stacks blames the waits of the events that are remembered, and those that go on, on the holders
// at the time. since is when the oldest of these events happened, at if there is none.
func (j *Journal) Stacks(waiting []Waiting, at int64) (list []Stack, since int64) {
	if j == nil {
		return nil, at
	}
	byShard := make([][]Waiting, shards)
	for _, w := range waiting {
		i := j.hash(w.Lock) % shards
		byShard[i] = append(byShard[i], w)
	}
	stacks, since := map[stackKey]*Stack{}, at
	for i := range j.shards {
		s := &j.shards[i]
		s.mu.Lock()
		events := make([]Event, s.events.n)
		for k := range events {
			events[k] = s.events.at(k).event()
		}
		last := map[names.Lock]holding{}
		for _, w := range byShard[i] {
			if h := s.get(w.Lock, j.hash(w.Lock)); h != nil && h.holder != "" {
				last[w.Lock] = holding{h.holder, h.since}
			}
		}
		s.mu.Unlock()
		walk := stackWalk{stacks: stacks, open: map[names.Lock]*openWaits{}, last: last}
		for _, w := range byShard[i] {
			walk.wait(w.Lock, openWait{waiter: w.Holder.name(), from: w.Since, to: at})
		}
		if oldest := walk.events(events, at-int64(Window)); oldest > 0 {
			since = min(since, oldest)
		}
		walk.end()
	}
	list = make([]Stack, 0, len(stacks))
	for _, s := range stacks {
		list = append(list, *s)
	}
	slices.SortFunc(list, func(a, b Stack) int {
		return cmp.Or(cmp.Compare(b.Wait, a.Wait), cmp.Compare(a.DB, b.DB),
			cmp.Compare(a.Key, b.Key), cmp.Compare(a.Waiter, b.Waiter),
			cmp.Compare(a.Holder, b.Holder))
	})
	return list, since
}

// holding is who has had a lock since when.
type holding struct {
	name  string
	since int64
}

// stackWalk goes back in time through the events of locks.
type stackWalk struct {
	stacks map[stackKey]*Stack
	open   map[names.Lock]*openWaits
	last   map[names.Lock]holding // that the walk has not come to
}

// openWaits are those for one lock. From edge on they have been blamed.
type openWaits struct {
	waits []openWait
	edge  int64
}

func (w *stackWalk) wait(id names.Lock, wait openWait) {
	o := w.open[id]
	if o == nil {
		o = &openWaits{edge: wait.to}
		w.open[id] = o
	}
	o.edge = max(o.edge, wait.to) // only before anything has been blamed
	o.waits = append(o.waits, wait)
}

// events takes in what happened since a time, the newest event first, and returns when the oldest
// happened.
func (w *stackWalk) events(list []Event, since int64) (oldest int64) {
	for _, e := range slices.Backward(list) {
		if e.at < since {
			break
		}
		oldest = e.at
		if h, ok := w.last[e.Lock]; ok && e.at < h.since {
			w.held(e.Lock, h.name, h.since)
			delete(w.last, e.Lock)
		}
		switch e.Kind {
		case Acquired:
			w.held(e.Lock, e.Holder.name(), e.at)
			if e.Wait > 0 {
				w.ended(e)
			}
		case Seen:
			w.held(e.Lock, e.Holder.name(), e.at)
		case GaveUp:
			w.ended(e)
		}
	}
	return oldest
}

// ended is for the event with which a wait ended.
func (w *stackWalk) ended(e Event) {
	o := w.open[e.Lock]
	if o == nil {
		o = &openWaits{edge: e.at}
		w.open[e.Lock] = o
	}
	o.waits = append(o.waits,
		openWait{waiter: e.Holder.name(), from: e.at - int64(e.Wait), to: e.at})
}

// held blames a holder for the waits since it was given the lock, until the next one was.
func (w *stackWalk) held(id names.Lock, holder string, since int64) {
	o := w.open[id]
	if o == nil || since >= o.edge {
		return
	}
	left := o.waits[:0]
	for _, wait := range o.waits {
		w.blame(id, &wait, holder, max(since, wait.from), min(o.edge, wait.to))
		if wait.from < since {
			left = append(left, wait)
		}
	}
	o.waits, o.edge = left, since
}

// end blames the waits before the first event that is remembered.
func (w *stackWalk) end() {
	for id, h := range w.last {
		w.held(id, h.name, h.since)
	}
	for id, o := range w.open {
		for _, wait := range o.waits {
			w.blame(id, &wait, "", wait.from, min(o.edge, wait.to))
		}
	}
}

func (w *stackWalk) blame(id names.Lock, wait *openWait, holder string, from, to int64) {
	if to <= from && (wait.counted || holder != "") {
		return
	}
	key := stackKey{wait.waiter, id, holder}
	s := w.stacks[key]
	if s == nil && len(w.stacks) >= maxStacks {
		key.waiter, key.holder = "", ""
		s = w.stacks[key]
	}
	if s == nil {
		s = &Stack{Waiter: key.waiter, Lock: id, Holder: key.holder}
		w.stacks[key] = s
	}
	if !wait.counted {
		s.Waits++
		wait.counted = true
	}
	s.Wait += time.Duration(max(to-from, 0))
}
