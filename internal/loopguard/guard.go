package loopguard

import (
	"bytes"
	"runtime"
	"sync"
	"sync/atomic"
)

var (
	on     atomic.Bool
	inside sync.Map // by goroutine, as a stack names it: it runs what a loop runs
)

// On switches the guard on. It is for tests.
func On() { on.Store(true) }

// Off switches it off. It is for tests of what a proxy that serves allocates: the guard does.
func Off() { on.Store(false) }

// Enter says that the calling goroutine begins to do what a loop runs, until it calls leave.
func Enter() (leave func()) {
	if !on.Load() {
		return func() {}
	}
	me := goroutine()
	if _, within := inside.LoadOrStore(me, true); within {
		return func() {}
	}
	return func() { inside.Delete(me) }
}

// MayWait is called by what can wait: for a channel, another goroutine, a connection or a file.
func MayWait() {
	if on.Load() {
		if _, within := inside.Load(goroutine()); within {
			panic("this can wait, and is called in an event loop")
		}
	}
}

// goroutine is the calling one's number.
func goroutine() string {
	var room [64]byte
	words := bytes.Fields(room[:runtime.Stack(room[:], false)])
	return string(words[1])
}
