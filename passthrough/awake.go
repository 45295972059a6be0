package passthrough

// How spares get on with an upstream that lets in few clients, or closes those that are silent.

import "time"

// ampleIdle is how many spares there may be where the upstream lets in many.
func (ls *Lanes) ampleIdle() int { return max(maxIdle, ls.reserve) }

// BoundReserve bounds how many spares there may be, because of what the upstream allows; less than 0 is not at all. Those that are too many are
// closed, but not those that can't be replaced.
func (ls *Lanes) BoundReserve(n int) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.maxIdle = ls.ampleIdle()
	if n >= 0 {
		ls.maxIdle = min(ls.maxIdle, n)
	}
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
