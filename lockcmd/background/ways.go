package background

import (
	"sync/atomic"
	"time"

	"lockproxy/internal/slot"
	"lockproxy/lockcmd/keyname"
)

// Ways are how far the upstream is away: the shortest of the last round trips of scripts. Of a
// cluster each part of the slots has its own.
type Ways struct {
	cluster bool
	parts   [clusterParts]way
}

// way is the last round trips to a part of the slots, ns; 0 is none yet.
type way struct {
	next     atomic.Uint32
	last     [waySamples]atomic.Int64
	shortest atomic.Int64
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
