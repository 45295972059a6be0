package passthrough

import (
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

// pause says that Redis holds back writes for d from now on; 0 ends that. On a lane, a write that
// is held back would delay everything behind it.
func (s *sharing) pause(d time.Duration) {
	until := int64(0)
	if d > 0 {
		until = monotonic.Now() + int64(d)
	}
	s.paused.Store(until)
}

func (s *sharing) allowed() bool {
	until := s.paused.Load()
	return !s.suspended.Load() && (until == 0 || monotonic.Now() > until)
}
