// Package busypoll keeps a process awake for a moment after it has had something to do, since there is likely to be more: the reply to what it
// has just asked, the next request of the client that it has just answered.
//
// A process that sleeps has to be woken, which on small virtual machines costs whoever sends to it and itself more than relaying a request
// does: there a client that sends one request at a time waits as long for the waking as for all the rest. So before Go's scheduler puts the
// process to sleep, a goroutine with nothing else to do looks whether anything has come on the network, as long as the window lasts. Whenever
// it has found nothing it lets other processes and goroutines run. This is what the kernel's own net.core.busy_poll is for; that knows only
// network cards, not loopback and Unix sockets.
//
// It costs processor time that nobody else wants at the moment. Where looking is mostly in vain it is done ever more rarely: see hope.
//
// It works where Go runs goroutines on one processor (GOMAXPROCS is 1): with more, one that has nothing to do waits for the network and is woken
// whatever the others do. And it works on Linux alone. Anywhere else, and where the processor time of the process is rationed by its control
// group, so that it would be missing later, Start returns nil.
package busypoll

import (
	"runtime"
	"sync/atomic"
	"time"
)

// Poller is one such goroutine. All methods may be called on a nil *Poller, which does nothing. Safe for concurrent use.
type Poller struct {
	window time.Duration
	poll   func() (ready bool) // whether something has come for Go's scheduler
	yield  func()              // lets other processes run

	resting atomic.Bool // it waits for Stir
	hope    hope
	wake    chan struct{} // room for one
	stop    chan struct{}
	ended   chan struct{}
}

// Start begins to look for more to do for window after each Stir. It returns nil if that can't be had here, or window is not above 0. Whoever
// starts a Poller must Stop it.
func Start(window time.Duration) *Poller {
	if window <= 0 {
		return nil
	}
	poll, yield := prepare()
	if poll == nil {
		return nil
	}
	return start(window, poll, yield)
}

func start(window time.Duration, poll func() bool, yield func()) *Poller {
	p := &Poller{window: window, poll: poll, yield: yield, wake: make(chan struct{}, 1), stop: make(chan struct{}), ended: make(chan struct{})}
	p.resting.Store(true)
	go p.run() // ends with Stop, which waits for it
	return p
}

// Stir says that something has come in, and been read: there may be more soon. It never waits.
func (p *Poller) Stir() {
	if p == nil || !p.resting.Load() || !p.hope.justified() {
		return
	}
	if p.resting.CompareAndSwap(true, false) {
		p.wake <- struct{}{} // there is room: whoever rests has taken what was there
	}
}

// Stop ends it, and returns when it has ended. It must be called once.
func (p *Poller) Stop() {
	if p == nil {
		return
	}
	close(p.stop)
	<-p.ended
}

func (p *Poller) run() {
	defer close(p.ended)
	for {
		select {
		case <-p.wake:
		case <-p.stop:
			return
		}
		p.hope.learn(p.look())
		p.resting.Store(true)
	}
}

// look returns as soon as something has come, or the window is over. The caller then has to wait for something, so that the scheduler, which has
// nothing else to run, takes what has come.
func (p *Poller) look() (found bool) {
	end := time.Now().Add(p.window)
	for {
		runtime.Gosched()
		if p.poll() {
			return true
		}
		if time.Now().After(end) {
			return false
		}
		p.yield()
	}
}

// maxMisses bounds how rarely one looks: once in 1<<maxMisses times.
const maxMisses = 6

// hope is how much sense it makes to look: after each time in vain it is left out twice as often as before, after one that wasn't never.
type hope struct {
	misses atomic.Int32 // in a row, at most maxMisses
	leave  atomic.Int32 // how often it is still to be left out
}

// justified reports whether to look now.
func (h *hope) justified() bool {
	return h.leave.Load() <= 0 || h.leave.Add(-1) < 0
}

// learn takes note of what came of looking.
func (h *hope) learn(found bool) {
	if found {
		h.misses.Store(0)
		return
	}
	misses := min(h.misses.Load()+1, maxMisses)
	h.misses.Store(misses)
	h.leave.Store(1<<misses - 1)
}
