package background

import (
	"sync/atomic"
	"time"

	"lockproxy/internal/slot"
	"lockproxy/lockcmd/keyname"
)

// Ways know how far away the upstream is, by the shortest of the last round trips of scripts, and
// its clock. In a cluster each part of the slots has its own.
type Ways struct {
	cluster bool
	parts   [clusterParts]way
}

// way is the last round trips to a part of the slots, ns; 0 is none yet.
type way struct {
	next     atomic.Uint32
	last     [waySamples]atomic.Int64
	shortest atomic.Int64
	clock    atomic.Pointer[reading]
}

// reading is what the clock of the upstream has said, ms, until a time here.
type reading struct {
	now int64
	by  time.Time
}

const (
	// waySamples is how many round trips are remembered: one that had to queue says nothing.
	waySamples = 8
	// nearWay is the longest round trip that nothing needs to allow for.
	nearWay = 50 * time.Millisecond
	// wayStep and maxWay are how the lock record tells a way: in steps, up to so many.
	wayStep = 100 * time.Millisecond
	maxWay  = 20
)

func (ws *Ways) to(key string) *way {
	if !ws.cluster {
		return &ws.parts[0]
	}
	return &ws.parts[keyname.SlotOf([]byte(key))/(slot.Count/clusterParts)]
}

// Told notes the time, ms, that the upstream has just told.
func (ws *Ways) Told(key string, now int64) { ws.to(key).clock.Store(&reading{now, time.Now()}) }

// Took notes a round trip of a script on a lock.
func (ws *Ways) Took(key string, d time.Duration) {
	w, shortest := ws.to(key), int64(d)
	w.last[w.next.Add(1)%waySamples].Store(max(shortest, 1))
	for i := range w.last {
		if d := w.last[i].Load(); d != 0 {
			shortest = min(shortest, d)
		}
	}
	w.shortest.Store(shortest)
}

// Clock is the upstream's time at a time here, ms, or somewhat less: the answer that told it had a
// way. If it has not told it yet, it is the least time there is.
func (ws *Ways) Clock(key string, at time.Time) int64 {
	if told := ws.to(key).clock.Load(); told != nil {
		return told.now + at.Sub(told.by).Milliseconds()
	}
	return 1
}

// RoundTrip is the time to the upstream and back for a lock; 0 if it is near, or not known.
func (ws *Ways) RoundTrip(key string) time.Duration {
	if d := time.Duration(ws.to(key).shortest.Load()); d >= nearWay {
		return d
	}
	return 0
}

// farthest is the longest RoundTrip.
func (ws *Ways) Farthest() (longest time.Duration) {
	for i := range ws.parts {
		if d := time.Duration(ws.parts[i].shortest.Load()); d >= nearWay {
			longest = max(longest, d)
		}
	}
	return longest
}

// Steps is the way as `how` in the lock record has it.
func (ws *Ways) Steps(key string) int64 {
	return min(int64((ws.RoundTrip(key)+wayStep-1)/wayStep), maxWay)
}

// clusterParts is how many parts the slots have. The slots of a master mostly follow one another.
const clusterParts = 16
