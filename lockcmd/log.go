package lockcmd

import (
	"sync/atomic"
	"time"
)

// maxLogLines bounds the log's lines of one kind within a second.
const maxLogLines = 10

// logLimit counts the log's lines of one kind, so that many clients do not fill the log.
type logLimit struct {
	second  atomic.Int64
	within  atomic.Int64
	omitted atomic.Int64
}

// allow reports whether a line can be written now, and how many were omitted since the last one.
func (s *logLimit) allow(now time.Time) (omitted int64, ok bool) {
	second := now.Unix()
	if s.second.Swap(second) != second {
		s.within.Store(0)
	}
	if s.within.Add(1) > maxLogLines {
		s.omitted.Add(1)
		return 0, false
	}
	return s.omitted.Swap(0), true
}
