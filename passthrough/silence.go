package passthrough

import (
	"sync/atomic"
	"time"

	"lockproxy/internal/monotonic"
)

const (
	// maxSilence is for how long answers can be due before sessions leave a lane or wait no longer,
	// in addition to the distance.
	maxSilence = 100 * time.Millisecond
	// maxDistance is how long an answer takes that says something of the distance.
	maxDistance = 2 * time.Second
)

// distance is how long Redis takes for something, ns: the longest of the last times, since the nodes
// of a cluster can be at several distances. Its zero value is of a near Redis.
type distance struct{ ns atomic.Int64 }

func (d *distance) get() time.Duration { return time.Duration(d.ns.Load()) }

// took notes an answer. One that took less than those before counts little by little.
func (d *distance) took(t time.Duration) {
	if before := d.get(); t <= maxDistance {
		d.ns.Store(int64(max(t, before-before/8)))
	}
}

// silence is since when a lane's answers have been due.
type silence struct {
	distance *distance
	since    atomic.Int64 // as monotonic.Now; 0 if none are due
	first    bool         // guarded by lane.mu; nothing was due before what is due now
}

// asked notes a request. lane.mu is held.
func (s *silence) asked() {
	if s.since.Load() == 0 {
		s.first = true
		s.since.Store(monotonic.Now())
	}
}

// answered notes answers; due says that more are missing. lane.mu is held.
func (s *silence) answered(due bool) {
	if s.first {
		s.first = false
		s.distance.took(monotonic.Since(s.since.Load()))
	}
	since := int64(0)
	if due {
		since = monotonic.Now()
	}
	s.since.Store(since)
}

// tooLong reports whether answers have been due for longer than the distance explains.
func (s *silence) tooLong() bool {
	since := s.since.Load()
	return since != 0 && monotonic.Since(since) > maxSilence+s.distance.get()
}
