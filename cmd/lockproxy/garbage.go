package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// heapRoom is how much garbage there may always be before it is collected, bytes.
const heapRoom = 16 << 20

// leaveHeapRoom has a small heap collected more rarely than Go does by itself, which is whenever it has doubled: a proxy whose heap is 3 MB would
// collect twenty times a second while locks are taken. A heap of heapRoom and more is left to Go. What the environment says (GOGC) is left as it is.
func leaveHeapRoom() {
	if os.Getenv("GOGC") != "" {
		return
	}
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	percent := 100
	var again func(*[64]byte)
	again = func(*[64]byte) {
		metrics.Read(live)
		if want := gcPercent(live[0].Value.Uint64()); want < percent*3/4 || want > percent*4/3 {
			percent = want
			debug.SetGCPercent(want)
		}
		runtime.SetFinalizer(new([64]byte), again) // runs behind the next collection
	}
	again(nil)
}

// gcPercent is by how much of itself a heap of live bytes may grow, percent. Go lets any heap grow to 4 MB times that.
func gcPercent(live uint64) int {
	const most = heapRoom * 100 / (4 << 20)
	return int(min(max(100, heapRoom*100/max(live, 1)), most))
}
