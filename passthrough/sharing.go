package passthrough

import (
	"math"
	"sync/atomic"
	"time"

	"lockproxy/internal/monotonic"
)

// sharing says whether clients can use lanes now, and for how long Redis keeps a silent connection.
type sharing struct {
	suspended atomic.Bool  // Redis polices single connections
	timeout   atomic.Int64 // Redis's own for idle clients, a time.Duration; 0 for none
	paused    atomic.Int64 // until when Redis holds back writes, as monotonic.Now; 0 if it does not
}

// pause says that Redis holds back writes for d from now on, or for longer if it has been told so
// before. On a lane, a write that is held back would delay everything behind it.
func (s *sharing) pause(d time.Duration) {
	now := monotonic.Now()
	until := now + min(int64(d), math.MaxInt64-now)
	for last := s.paused.Load(); last < until && !s.paused.CompareAndSwap(last, until); {
		last = s.paused.Load()
	}
}

// unpause says that Redis holds back no writes any more.
func (s *sharing) unpause() { s.paused.Store(0) }

func (s *sharing) allowed() bool {
	until := s.paused.Load()
	return !s.suspended.Load() && (until == 0 || monotonic.Now() > until)
}
