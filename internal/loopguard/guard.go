package loopguard

import (
	"bytes"
	"runtime"
	"sync"
	"sync/atomic"
)

var (
	on      atomic.Bool
	entered atomic.Int64 // how many goroutines are inside
	inside  sync.Map     // by Goroutine: it runs what a loop runs
)

// On switches the guard on. It is for tests.
func On() { on.Store(true) }

// Off switches the guard off. It is for tests that count allocations: the guard allocates, too.
func Off() { on.Store(false) }

// Goroutine names a goroutine as a stack does. To find the name takes long.
type Goroutine string

// Enter says that the calling goroutine begins to do what a loop runs, until it calls leave. me is
// for it alone; Enter fills it in if it is empty.
func Enter(me *Goroutine) (leave func()) {
	if !on.Load() {
		return func() {}
	}
	if *me == "" {
		*me = current()
	}
	if _, within := inside.LoadOrStore(*me, true); within {
		return func() {}
	}
	entered.Add(1)
	return func() {
		entered.Add(-1)
		inside.Delete(*me)
	}
}

// MayWait is called by each function that can wait: for a channel, another goroutine, a connection
// or a file.
func MayWait() {
	if on.Load() && entered.Load() > 0 {
		if _, within := inside.Load(current()); within {
			panic("this can wait, and is called in an event loop")
		}
	}
}

func current() Goroutine {
	var room [64]byte
	words := bytes.Fields(room[:runtime.Stack(room[:], false)])
	return Goroutine(words[1])
}
