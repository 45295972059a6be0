package main

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

func TestGCPercent(t *testing.T) {
	for _, c := range []struct {
		live uint64
		want int
	}{{0, 400}, {1 << 20, 400}, {4 << 20, 400}, {8 << 20, 200}, {16 << 20, 100}, {1 << 40, 100}} {
		if got := gcPercent(c.live); got != c.want {
			t.Errorf("%d bytes: %d %%, want %d", c.live, got, c.want)
		}
	}
}

// A heap that has grown is left to Go again, and given room once it has shrunk.
func TestLeaveHeapRoom(t *testing.T) {
	t.Setenv("GOGC", "")
	before := debug.SetGCPercent(100)
	t.Cleanup(func() { debug.SetGCPercent(before) }) // what leaveHeapRoom has begun goes on, and changes it again only with the heap
	leaveHeapRoom()
	becomes := func(want int) {
		t.Helper()
		var got int
		for over := time.Now().Add(5 * time.Second); time.Now().Before(over); time.Sleep(time.Millisecond) {
			runtime.GC()
			got = debug.SetGCPercent(100)
			debug.SetGCPercent(got)
			if got >= want*3/4 && got <= want*4/3 {
				return
			}
		}
		t.Errorf("%d %%, want %d", got, want)
	}
	ballast := make([]byte, 100<<20)
	becomes(100)
	runtime.KeepAlive(ballast)
	ballast = nil
	becomes(400)
}
