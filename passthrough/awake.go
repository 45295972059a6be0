package passthrough

// How many spares there may be, and how they get on with an upstream that closes clients which are silent.

import (
	"math"
	"time"
)

// SetReserve changes how many idle connections of each user and password are kept, see NewLanes.
func (ls *Lanes) SetReserve(n int) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.perIdentity == 0 || ls.upstream.cluster != nil {
		n = 0
	}
	ls.reserve = n
	ls.boundLocked()
}

// BoundReserve bounds how many spares there may be, because of what the upstream allows; less than 0 is not at all. Those that are too many are
// closed, but not those that can't be replaced.
func (ls *Lanes) BoundReserve(n int) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.allowedIdle = n
	if n < 0 {
		ls.allowedIdle = math.MaxInt
	}
	ls.boundLocked()
}

func (ls *Lanes) boundLocked() {
	ls.maxIdle = min(max(maxIdle, ls.reserve), ls.allowedIdle)
	for _, g := range ls.groups {
		for !g.stale && len(g.idle) > 0 && ls.idle > ls.maxIdle {
			ls.closeLocked(g, 0)
		}
	}
}

// StayAwake has every spare that is silent for so long asked something, since the upstream closes who is silent for longer; 0 is never.
func (ls *Lanes) StayAwake(every time.Duration) {
	if ls.stayAwake.Swap(int64(every)) == int64(every) {
		return
	}
	var all []*spare
	ls.mu.Lock()
	for _, g := range ls.groups {
		all = append(all, g.idle...)
	}
	ls.mu.Unlock()
	for _, s := range all { // those that wait have to wait anew
		s.asking.Lock()
		if !s.wanted {
			s.conn.SetReadDeadline(time.Unix(1, 0))
		}
		s.asking.Unlock()
	}
}
