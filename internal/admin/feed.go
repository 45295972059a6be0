package admin

import (
	"cmp"
	"slices"
	"time"

	"lockproxy/internal/journal"
	"lockproxy/internal/survey"
	"lockproxy/lockcmd"
)

const (
	feedLength = 40 // events
	topLength  = 8  // locks
	// seenEvery is how many ticks of a stream lie between two looks at all that was seen.
	seenEvery = 2
	// notableWait is the shortest wait for a lock that is notable by itself.
	notableWait = 10 * time.Second
)

// seen is what a page shows next to the locks that are held.
type seen struct {
	Events []lockEvent `json:"events"` // the notable ones, newest first
	Five   []lockCost  `json:"last_5_minutes"`
	Sixty  []lockCost  `json:"last_60_minutes"`
}

func (s *Server) seen() seen {
	events, _ := s.cfg.Proxy.Locks().Events(feedLength, notable)
	rows := append(eventsOf(events), s.deadlocks()...) // the page wants a list, also an empty one
	slices.SortStableFunc(rows, func(a, b lockEvent) int { return cmp.Compare(b.AtMS, a.AtMS) })
	return seen{rows[:min(len(rows), feedLength)], s.contended(5 * time.Minute),
		s.contended(journal.Window)}
}

// deadlocks are those of the last hour. An event has the lock of the wait that was refused.
func (s *Server) deadlocks() (rows []lockEvent) {
	for _, d := range s.cfg.Proxy.Locks().Deadlocks(time.Now().Add(-journal.Window)) {
		rows = append(rows, lockEvent{
			ID: idOf(d.Key), AtMS: d.When.UnixMilli(), Event: "deadlock", DB: d.DB,
			Key: shortened(survey.Printable(d.Key)), Client: d.Client, Cycle: d.Cycle,
		})
	}
	return rows
}

// notable reports whether an event matters to operators. Most only say that a lock was taken and
// released.
func notable(e *journal.Event) bool {
	switch e.Kind {
	case journal.Acquired:
		return e.Wait >= notableWait
	case journal.Released, journal.Seen:
		return false
	}
	return true
}

// contended are the locks that clients have waited longest for within a time.
func (s *Server) contended(within time.Duration) []lockCost {
	list := slices.DeleteFunc(s.costs(within), func(c journal.Cost) bool { return c.Wait == 0 })
	lockcmd.SortCosts(list, "wait")
	rows := []lockCost{}
	for _, c := range list[:min(len(list), topLength)] {
		rows = append(rows, costOf(c))
	}
	return rows
}
