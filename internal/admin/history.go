package admin

import (
	"slices"
	"sync"
	"time"

	"lockproxy/proxy"
)

// recentWaits sums up the waits that have ended since the last take.
type recentWaits struct {
	mu      sync.Mutex
	n       int           // guarded by mu
	sum     time.Duration // guarded by mu
	longest time.Duration // guarded by mu
}

func (w *recentWaits) add(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.n++
	w.sum += d
	w.longest = max(w.longest, d)
}

// take returns the sum of the waits since the last take, and the longest; n is how many there were.
func (w *recentWaits) take() (sum, longest time.Duration, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	sum, longest, n = w.sum, w.longest, w.n
	w.n, w.sum, w.longest = 0, 0, 0
	return sum, longest, n
}

// point is one second of the history.
type point struct {
	At       int64   `json:"at"`       // Unix time, ms
	Acquired float64 `json:"acquired"` // locks a second
	Relayed  float64 `json:"relayed"`  // requests a second
	MeanMS   float64 `json:"mean_ms"`  // of the waits that ended within it, or go on
	MaxMS    float64 `json:"max_ms"`
	Waiters  int     `json:"waiters"`
	Held     int     `json:"held"`
}

// historyLength is how many seconds are kept.
const historyLength = 600

// history is the last minutes, a point a second.
type history struct {
	mu     sync.Mutex
	points []point // guarded by mu; the oldest first, by the machine's clock
	last   proxy.Stats
	lastAt time.Time
}

// add takes the point that lies between the last call and now.
func (h *history) add(now time.Time, st proxy.Stats, waits *recentWaits) {
	h.mu.Lock()
	defer h.mu.Unlock()
	sum, longest, n := waits.take()
	sum, longest, n = sum+st.Locks.Waiting, max(longest, st.Locks.OldestWait), n+st.Locks.Waiters
	seconds := now.Sub(h.lastAt).Seconds()
	first := h.lastAt.IsZero()
	p := point{
		At: now.UnixMilli(), MeanMS: milliseconds(sum / time.Duration(max(n, 1))),
		MaxMS:   milliseconds(longest),
		Waiters: st.Locks.Waiters, Held: st.Locks.Holding,
	}
	if !first && seconds > 0 {
		p.Acquired = float64(st.Locks.Acquired-h.last.Locks.Acquired) / seconds
		p.Relayed = float64(st.Commands[proxy.Relayed]-h.last.Commands[proxy.Relayed]) / seconds
	}
	h.last, h.lastAt = st, now
	if first {
		return
	}
	if len(h.points) == historyLength {
		h.points = slices.Delete(h.points, 0, 1)
	}
	later := func(other point) bool { return other.At >= p.At } // the clock was set back
	h.points = append(slices.DeleteFunc(h.points, later), p)
}

// since returns the points after a time, in ms, or all of them if the clock was set back since.
func (h *history) since(at int64) []point {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := len(h.points); n > 0 && h.points[n-1].At < at {
		at = 0
	}
	for i, p := range h.points {
		if p.At > at {
			return append([]point(nil), h.points[i:]...)
		}
	}
	return nil
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
