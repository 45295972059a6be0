package proxy

import (
	"iter"
	"sync"
)

// coroutine runs one function at a time, in turns with whoever starts and resumes it: never beside.
type coroutine struct {
	work   func()
	next   func() (struct{}, bool)
	stop   func()
	yield  func(struct{}) bool
	atRest bool // it has no work
}

func newCoroutine() *coroutine {
	c := &coroutine{atRest: true}
	c.next, c.stop = iter.Pull(func(yield func(struct{}) bool) { // ends with stop
		c.yield = yield
		for {
			c.work()
			c.work, c.atRest = nil, true
			if !yield(struct{}{}) {
				return
			}
		}
	})
	return c
}

// start runs work up to where it waits, or to its end.
func (c *coroutine) start(work func()) {
	c.work, c.atRest = work, false
	c.next()
}

// wait is for work: it returns when that is resumed.
func (c *coroutine) wait() { c.yield(struct{}{}) }

// resume has work go on to where it waits again, or to its end.
func (c *coroutine) resume() { c.next() }

// maxSpareCoroutines bounds those that are kept. Each has a stack of 8 KB or so.
const maxSpareCoroutines = maxLockRun

// coroutines are kept for the next work, since to make one and let its stack grow costs as much as half of a lock command. Its zero value is empty.
type coroutines struct {
	mu     sync.Mutex
	spare  []*coroutine // guarded by mu
	closed bool         // guarded by mu
}

// take returns one that is at rest. It must be put back.
func (cs *coroutines) take() *coroutine {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	last := len(cs.spare) - 1
	if last < 0 {
		return newCoroutine()
	}
	c := cs.spare[last]
	cs.spare[last] = nil
	cs.spare = cs.spare[:last]
	return c
}

// put takes one back.
func (cs *coroutines) put(c *coroutine) {
	cs.mu.Lock()
	keep := c.atRest && !cs.closed && len(cs.spare) < maxSpareCoroutines
	if keep {
		cs.spare = append(cs.spare, c)
	}
	cs.mu.Unlock()
	if !keep {
		c.stop()
	}
}

// close ends all that are at rest; those that are still to be put back end with that.
func (cs *coroutines) close() {
	cs.mu.Lock()
	spare := cs.spare
	cs.spare, cs.closed = nil, true
	cs.mu.Unlock()
	for _, c := range spare {
		c.stop()
	}
}
