package queue

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"lockproxy/internal/names"
	"lockproxy/lockcmd/script"
)

// queueModel is a queue, with a list of its waiters in order of arrival and of the tokens that each
// was given.
type queueModel struct {
	queue   waitQueue
	waiting []*Waiter         // joined, and neither left nor granted the lock
	offers  []HandOver        // of releases under way; at most one names each waiter
	given   map[int64]*Waiter // each token that was given to a waiter
	token   int64
	now     time.Time
	gap     time.Time // as the queue counts them
	since   int       // grants since
	arrival map[*Waiter]int
}

func (m *queueModel) gone(w *Waiter) {
	m.waiting = slices.DeleteFunc(m.waiting, func(other *Waiter) bool { return other == w })
	delete(m.arrival, w)
}

// granted notes that w must have the lock now, with this token, and that nobody who came before
// still waits.
func (m *queueModel) granted(t *rapid.T, w *Waiter, token int64) {
	if w.state != granted || w.Token != token {
		t.Fatalf("a waiter that was given %d is in state %d with token %d", token, w.state, w.Token)
	}
	if m.waiting[0] != w {
		t.Fatalf("number %d was served before number %d", m.arrival[w], m.arrival[m.waiting[0]])
	}
	m.given[token] = w
	m.since++
	m.gone(w)
}

// told fails unless w has been signalled since it was last told.
func told(t *rapid.T, w *Waiter, why string) {
	select {
	case <-w.wake:
	default:
		t.Fatalf("%s, and is not told", why)
	}
}

// Whatever happens, in any order: a queue is served from its front, a token goes to one waiter or
// is handed back, the new first waiter is woken, and foreign clients find a gap in time.
func TestQueueAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &queueModel{given: map[int64]*Waiter{}, arrival: map[*Waiter]int{}, token: 1000}
		m.now = time.Unix(1e9, 0)
		identities := []names.Identity{{}, {User: "walter"}, {DB: 3}}
		someone := rapid.SampledFrom(identities)
		joined := 0
		t.Repeat(map[string]func(*rapid.T){
			"join": func(t *rapid.T) {
				r := script.Request{Timeout: time.Duration(joined+1) * time.Second}
				w, n := newWaiter(r, someone.Draw(t, "identity")), len(m.waiting)
				permitted := n > 0 && (m.waiting[0].As == w.As || m.waiting[n-1].As == w.As)
				if got := m.queue.join(w); got != permitted {
					t.Fatalf("join: another of its identity is there: %v, want %v", got, permitted)
				}
				m.waiting = append(m.waiting, w)
				m.arrival[w] = joined
				joined++
			},
			"leave": func(t *rapid.T) {
				if len(m.waiting) == 0 {
					return
				}
				w := m.waiting[rapid.IntRange(0, len(m.waiting)-1).Draw(t, "who")]
				first := m.waiting[0] == w
				w.state = left
				m.queue.leave(w)
				m.queue.leave(w) // once more makes no difference
				m.gone(w)
				if first && len(m.waiting) > 0 {
					told(t, m.waiting[0], "a waiter has become first")
				}
			},
			"release": func(t *rapid.T) {
				as := someone.Draw(t, "identity")
				foreign := rapid.IntRange(0, 5).Draw(t, "foreign") == 0
				offer := m.queue.offer(as, foreign, m.now)
				want := "next or fair"
				switch {
				case len(m.waiting) == 0:
					want = "none"
				case foreign:
					want = "free"
				case m.since >= foreignGapGrants && !m.now.Before(m.gap.Add(foreignGapEvery)):
					want, m.gap, m.since = "gap", m.now, 0
				case m.waiting[0].As != as, slices.ContainsFunc(m.offers, func(o HandOver) bool {
					return o.Next == m.waiting[0]
				}):
					want = "self"
				}
				got := offer.Kind
				if got != want && (want != "next or fair" || got != "next" && got != "fair") {
					t.Fatalf("a release with %d waiting is %q, want %q", len(m.waiting), got, want)
				}
				if want == "next or fair" {
					if offer.Next != m.waiting[0] {
						t.Fatalf("the lock is offered to number %d", m.arrival[offer.Next])
					}
					m.offers = append(m.offers, offer)
				} else if offer.Next != nil {
					t.Fatalf("a release that is %q names a waiter", want)
				}
			},
			"outcome of a release": func(t *rapid.T) {
				if len(m.offers) == 0 {
					return
				}
				i := rapid.IntRange(0, len(m.offers)-1).Draw(t, "which")
				offer := m.offers[i]
				m.offers = slices.Delete(m.offers, i, i+1)
				token := int64(0)
				if rapid.Bool().Draw(t, "gives the lock") {
					m.token++
					token = m.token
				}
				w, before := offer.Next, offer.Next.state
				taken := m.queue.endOffer(w, token)
				switch {
				case token == 0 && !taken:
					t.Fatal("a release that gave nothing is to be undone")
				case token != 0 && before == offered:
					if !taken {
						t.Fatal("a token that its waiter has is to be released")
					}
					m.granted(t, w, token)
					told(t, w, "a waiter has been granted the lock")
					if len(m.waiting) > 0 {
						told(t, m.waiting[0], "a waiter has become first")
					}
				case token != 0 && taken:
					t.Fatalf("a token is lost whose waiter is in state %d", before)
				case token == 0 && before == offered && w.state != waiting:
					t.Fatalf("a waiter that was given nothing is in state %d", w.state)
				}
			},
			"the first takes it": func(t *rapid.T) {
				if len(m.waiting) == 0 {
					return
				}
				m.token++
				w := m.queue.first()
				m.queue.grant(w, m.token)
				m.granted(t, w, m.token)
			},
			"many take it": func(t *rapid.T) { // so many that it is time for a gap
				if len(m.waiting) > 0 {
					return
				}
				for range foreignGapGrants {
					w := newWaiter(script.Request{}, names.Identity{})
					m.queue.join(w)
					m.token++
					m.queue.grant(w, m.token)
					m.since++
				}
			},
			"time passes": func(t *rapid.T) {
				ms := rapid.IntRange(1, 400).Draw(t, "ms")
				m.now = m.now.Add(time.Duration(ms) * time.Millisecond)
			},
			"": func(t *rapid.T) {
				if m.queue.len() != len(m.waiting) {
					t.Fatalf("the line has %d waiters, want %d", m.queue.len(), len(m.waiting))
				}
				var first *Waiter
				if len(m.waiting) > 0 {
					first = m.waiting[0]
				}
				if m.queue.first() != first {
					t.Fatal("another is first than came first")
				}
				for token, w := range m.given {
					if w.Token != token || w.state != granted {
						t.Fatalf("the holder of %d is in state %d with token %d",
							token, w.state, w.Token)
					}
				}
			},
		})
	})
}
