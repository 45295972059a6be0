package loglimit

import (
	"sync/atomic"
	"time"
)

// maxLines bounds the lines of one kind within a second.
const maxLines = 10

// Limit counts the lines of one kind.
type Limit struct {
	second  atomic.Int64
	within  atomic.Int64
	omitted atomic.Int64
}

// Allow reports whether a line can be written now, and how many were omitted since the last one.
func (s *Limit) Allow(now time.Time) (omitted int64, ok bool) {
	second := now.Unix()
	if s.second.Swap(second) != second {
		s.within.Store(0)
	}
	if s.within.Add(1) > maxLines {
		s.omitted.Add(1)
		return 0, false
	}
	return s.omitted.Swap(0), true
}
