//go:build !race

package queue

import (
	"errors"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"lockproxy/internal/names"
	"lockproxy/lockcmd/background"
	"lockproxy/lockcmd/failure"
	"lockproxy/lockcmd/script"
)

// queueModel is the queue of one claim, with what must be true of its waiters.
type queueModel struct {
	qs      *Queues
	id      names.Lock
	line    []*modelWaiter // in order of arrival; not those that have the lock or were served
	alive   []*modelWaiter // their commands have not ended
	known   map[*Waiter]*modelWaiter
	offers  []HandOver // of releases under way; at most one names each waiter
	holders map[int64]*modelWaiter
	token   int64
	now     time.Time
	gap     time.Time // as the queue counts them
	since   int       // grants since
	joined  int
	dropped int // how many queues of the lock were forgotten
}

// modelWaiter is a waiter, and how the first thing that has ended its wait has ended it.
type modelWaiter struct {
	*Waiter
	number  int
	queue   int // the queueModel's dropped when it joined
	offered bool
	ended   waitState // waiting if nothing has
	refused error
}

// queue is the queue, an empty one if nobody waits.
func (m *queueModel) queue() *waitQueue {
	if q := m.qs.lineOf(m.id); q != nil {
		return q
	}
	return &waitQueue{}
}

func without(list []*modelWaiter, w *modelWaiter) []*modelWaiter {
	return slices.DeleteFunc(list, func(other *modelWaiter) bool { return other == w })
}

// leaves notes that w is in the line no longer. Then the next is woken.
func (m *queueModel) leaves(t *rapid.T, w *modelWaiter) {
	first := len(m.line) > 0 && m.line[0] == w
	m.line = without(m.line, w)
	if first && len(m.line) > 0 {
		told(t, m.line[0].Waiter, "a waiter has become first")
	}
}

// granted notes that w must have the lock now, with this token. in says that it must be its turn.
func (m *queueModel) granted(t *rapid.T, w *modelWaiter, token int64, inTurn bool) {
	if inTurn && m.line[0] != w {
		t.Fatalf("number %d was given the lock before number %d", w.number, m.line[0].number)
	}
	w.ended, w.offered = granted, false
	m.holders[token] = w
	m.since++
	told(t, w.Waiter, "a waiter has been granted the lock")
	m.leaves(t, w)
}

// drop notes that the command of w has ended: then its queue is forgotten if nobody waits there.
func (m *queueModel) drop(w *modelWaiter) {
	if len(m.line) == 0 && w.queue == m.dropped {
		m.gap, m.since = time.Time{}, 0
		m.dropped++
	}
}

// told fails unless w has been signalled since it was last told.
func told(t *rapid.T, w *Waiter, why string) {
	if !w.TakeWoken() {
		t.Fatalf("%s, and is not told", why)
	}
}

// one draws one of a list, nil if there is none.
func one(t *rapid.T, list []*modelWaiter) *modelWaiter {
	if len(list) == 0 {
		return nil
	}
	return rapid.SampledFrom(list).Draw(t, "who")
}

// ends ends the wait of w, unless something has ended it. It reports whether that is so.
func (w *modelWaiter) ends(as waitState, refused error) bool {
	if w.ended != waiting {
		return false
	}
	w.ended, w.refused, w.offered = as, refused, false
	return true
}

// Whatever happens, in any order, also while scripts are under way whose answers come later: a
// queue is served from its front, each wait ends once and as the first who ended it was told, a
// token goes to one waiter or is handed back, the new first waiter is woken, and foreign clients
// find a gap in time.
func TestQueueAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &queueModel{
			qs: New(&background.Ways{}), id: names.Lock{Key: "claim"},
			known: map[*Waiter]*modelWaiter{}, holders: map[int64]*modelWaiter{}, token: 1000,
			now: time.Unix(1e9, 0),
		}
		identities := []names.Identity{{}, {User: "walter"}}
		someone := rapid.SampledFrom(identities)
		missing := script.NoReplicasError{Outcome: script.NotTaken}
		t.Repeat(map[string]func(*rapid.T){
			"join": func(t *rapid.T) {
				m.joined++
				r := script.Request{Key: "claim", Once: true, Value: "page",
					Connection: string(rune(m.joined)),
					Timeout:    time.Duration(m.joined) * time.Second}
				as, n := someone.Draw(t, "identity"), len(m.line)
				w, at := m.qs.Join(r, as, 0, m.now)
				permitted := n > 0 && (m.line[0].As == as || m.line[n-1].As == as)
				if at.Permitted != permitted || at.First != (n == 0) {
					t.Fatalf("%+v, want permitted: %v, with %d in front", at, permitted, n)
				}
				one := &modelWaiter{Waiter: w, number: m.joined, queue: m.dropped}
				m.line, m.alive, m.known[w] = append(m.line, one), append(m.alive, one), one
			},
			"its command ends": func(t *rapid.T) {
				w := one(t, m.alive)
				if w == nil {
					return
				}
				key, had := m.qs.WaitsFor(w.Connection)
				d := w.End(nil)
				w.ends(left, nil)
				_, waits := m.qs.WaitsFor(w.Connection)
				if !had || key != m.id.Key || waits || d.Won != (w.ended == granted) ||
					(d.Found != nil) != (w.ended == served) || !errors.Is(d.Err, w.refused) {
					t.Fatalf("number %d has ended as %d, and hears of %+v", w.number, w.ended, d)
				}
				m.alive = without(m.alive, w)
				m.leaves(t, w)
				m.drop(w)
			},
			"CLIENT UNBLOCK": func(t *rapid.T) {
				w := one(t, m.alive)
				if w == nil {
					return
				}
				err := failure.UnblockedError(true)
				was := m.qs.Unblock(w.Connection, true)
				if was != w.ends(left, err) {
					t.Fatalf("number %d has ended as %d, and UNBLOCK says %v", w.number, w.ended, was)
				}
				if was {
					told(t, w.Waiter, "a waiter was unblocked")
				}
			},
			"a deadlock": func(t *rapid.T) {
				w := one(t, m.alive)
				if w == nil {
					return
				}
				err := failure.UnblockedError(false)
				was := w.Refuse(err)
				if want := !w.offered && w.ends(left, err); was != want {
					t.Fatalf("number %d was refused: %v, want %v", w.number, was, want)
				}
				if was {
					told(t, w.Waiter, "a waiter was refused")
				}
			},
			"release": func(t *rapid.T) {
				as := someone.Draw(t, "identity")
				foreign := rapid.IntRange(0, 5).Draw(t, "foreign") == 0
				offer := m.queue().offer(as, foreign, m.now)
				offer.Of = m.qs.Of(m.id)
				want := "next or fair"
				switch {
				case len(m.line) == 0:
					want = "none"
				case foreign:
					want = "free"
				case m.since >= foreignGapGrants && !m.now.Before(m.gap.Add(foreignGapEvery)):
					want, m.gap, m.since = "gap", m.now, 0
				case m.line[0].As != as, m.line[0].offered, m.line[0].ended != waiting:
					want = "self"
				}
				got := offer.Kind
				if got != want && (want != "next or fair" || got != "next" && got != "fair") {
					t.Fatalf("a release with %d waiting is %q, want %q", len(m.line), got, want)
				}
				if want != "next or fair" {
					if offer.Named != nil {
						t.Fatalf("a release that is %q names a waiter", want)
					}
					return
				}
				if offer.Named[0] != m.line[0].Waiter {
					t.Fatal("the lock is not offered to the first")
				}
				m.line[0].offered = true
				m.offers = append(m.offers, offer)
			},
			"outcome of a release": func(t *rapid.T) {
				if len(m.offers) == 0 {
					return
				}
				i := rapid.IntRange(0, len(m.offers)-1).Draw(t, "which")
				offer := m.offers[i]
				m.offers = slices.Delete(m.offers, i, i+1)
				r := Released{Done: true}
				switch rapid.IntRange(0, 3).Draw(t, "outcome") {
				case 0:
					r = Released{Failed: true, Unknown: failure.ErrLost}
				case 1: // nobody is given it
				case 2:
					r.Missing = missing
					fallthrough
				case 3:
					m.token++
					r.Token, r.Given = m.token, 1
				}
				w, ends := m.known[offer.Named[0]], offer.End(r, m.now) // its command can have ended
				switch {
				case r.Token != 0 && r.Missing == nil && w.ended == waiting:
					m.granted(t, w, r.Token, true)
				case r.Missing != nil:
					w.ends(left, missing)
				}
				w.offered = false
				var back []int64
				for _, g := range append(ends.Rejected, ends.Abandoned...) {
					back = append(back, g.Token)
				}
				var want []int64
				switch kept := w.ended == granted; {
				case r.Token != 0 && m.holders[r.Token] == nil:
					want = []int64{r.Token}
				case r.Unknown != nil && w.ended != waiting && !kept:
					want = []int64{0}
				}
				if !slices.Equal(back, want) {
					t.Fatalf("%+v: %v are to be released, want %v", r, back, want)
				}
			},
			"an answer to its poll or check": func(t *rapid.T) {
				w := one(t, m.alive)
				if w == nil {
					return
				}
				first := len(m.line) > 0 && m.line[0] == w
				m.token++
				a, err := script.Attempt{Token: m.token}, error(nil)
				switch rapid.IntRange(0, 4).Draw(t, "answer") {
				case 0:
					a.Token = 0
				case 1:
					err = missing
				case 2:
					a.Renewed = true
				case 3:
					a.Renewed, err = true, missing
				}
				had := w.ended == granted
				kept, refused := w.Settle(a, err)
				want := a.Token == 0
				switch {
				case a.Token == 0:
				case had && err == nil: // its earlier lease is over
					delete(m.holders, m.tokenOf(w))
					m.holders[a.Token], want = w, true
				case had:
					delete(m.holders, m.tokenOf(w))
					w.ended, w.refused = left, err
				case err == nil && w.ended == waiting:
					m.granted(t, w, a.Token, first)
					want = true
				case err != nil && !a.Renewed:
					w.ends(left, err)
				}
				if kept != want || !errors.Is(refused, w.refused) {
					t.Fatalf("number %d, ended as %d: kept %v, want %v; refused: %v, want %v",
						w.number, w.ended, kept, want, refused, w.refused)
				}
				w.EndPoll(a, m.now)
			},
			"an answer to its GET": func(t *rapid.T) {
				w := one(t, m.alive)
				if w == nil {
					return
				}
				value, had := "text", w.ended == granted
				given, refused := w.Serve(&value, m.now)
				if had {
					delete(m.holders, m.tokenOf(w))
					w.ended = served
				}
				before := slices.Clone(m.line)
				if w.ends(served, nil) {
					m.line = without(m.line, w)
				}
				if given != had || !errors.Is(refused, w.refused) {
					t.Fatalf("number %d: given %v, want %v; refused: %v", w.number, given, had, refused)
				}
				for _, other := range before {
					if other.queue == w.queue && other.As == w.As && other.Joined.Before(m.now) &&
						other.ends(served, nil) {
						told(t, other.Waiter, "a waiter was served")
						m.line = without(m.line, other)
					}
				}
				if len(m.line) > 0 && m.line[0] != before[0] {
					told(t, m.line[0].Waiter, "a waiter has become first")
				}
			},
			"many take it": func(t *rapid.T) { // so many that it is time for a gap
				if len(m.line) > 0 {
					return
				}
				for range foreignGapGrants {
					w := newWait(names.Identity{}, script.Request{Key: "claim"}).Lead
					e := m.qs.entryLocked(m.id)
					if e.line == nil {
						e.line = &waitQueue{}
						m.qs.usedLocked(e)
					}
					e.line.join(w)
					m.token++
					e.line.grant(w, m.token)
					m.since++
				}
			},
			"time passes": func(t *rapid.T) {
				ms := rapid.IntRange(1, 400).Draw(t, "ms")
				m.now = m.now.Add(time.Duration(ms) * time.Millisecond)
			},
			"": func(t *rapid.T) {
				if got := m.queue().len(); got != len(m.line) {
					t.Fatalf("the line has %d waiters, want %d", got, len(m.line))
				}
				var first *Waiter
				if len(m.line) > 0 {
					first = m.line[0].Waiter
				}
				if m.queue().first() != first {
					t.Fatal("another is first than came first")
				}
				for _, w := range m.alive {
					if got := w.State(); got.Has != (w.ended == granted) ||
						got.Waits != (w.ended == waiting && !w.offered) {
						t.Fatalf("number %d has ended as %d, offered %v: it is %+v", w.number, w.ended,
							w.offered, got)
					}
				}
				for token, w := range m.holders {
					if w.Token != token || w.state != granted {
						t.Fatalf("the holder of %d is in state %d with token %d",
							token, w.state, w.Token)
					}
				}
			},
		})
	})
}

// tokenOf is the token that w was given.
func (m *queueModel) tokenOf(w *modelWaiter) int64 {
	for token, holder := range m.holders {
		if holder == w {
			return token
		}
	}
	return 0
}
