package proxy

import "testing"

// Each phase can follow only some others. A session that is drained or closed stays so.
func TestPhases(t *testing.T) {
	follows := map[phase][]phase{
		handshaking: {serving, draining, closed},
		serving:     {locking, draining, closed},
		locking:     {serving, draining, closed},
		draining:    {corked, drained, closed},
		corked:      {draining, drained, closed},
	}
	for from := handshaking; from <= closed; from++ {
		may := map[phase]bool{from: true}
		for _, to := range follows[from] {
			may[to] = true
		}
		for to := handshaking; to <= closed; to++ {
			var p phases
			p.now.Store(int32(from))
			if was := p.setPhase(to); was != from {
				t.Errorf("from %d to %d: it was %d", from, to, was)
			}
			if p.is(to) != may[to] {
				t.Errorf("from %d to %d: now %d", from, to, p.now.Load())
			}
		}
	}
}
