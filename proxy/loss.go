package proxy

import "time"

// A client whose machine has vanished closes nothing. While it has a session lock or waits for a lock others wait for it, so its kernel has
// to answer the proxy's: within the shortest timeout of its session locks, and these bounds.
const (
	minLossBound = 10 * time.Second // a laptop may take so long to change its network
	maxLossBound = 30 * time.Second
)

// lossBound is for how long the client's machine may answer nothing; 0 is for as long as the kernel allows. It is called by the guard.
func (s *session) lossBound() time.Duration {
	lease := s.holder.ShortestLease()
	switch {
	case lease > 0:
		return min(max(lease.Round(time.Second), minLossBound), maxLossBound)
	case s.is(locking):
		return maxLossBound
	}
	return 0
}
