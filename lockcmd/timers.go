package lockcmd

import (
	"context"
	"sync"
	"time"
)

// timers runs jobs at their times, each in a goroutine of its own, until it is closed.
type timers struct {
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu     sync.Mutex
	closed bool
}

func newTimers() *timers {
	a := &timers{}
	a.ctx, a.cancel = context.WithCancel(context.Background())
	return a
}

// after runs job after d, unless cancel is called before or the agenda is closed. The job must end when its ctx does.
func (a *timers) after(d time.Duration, job func(ctx context.Context)) (cancel func()) {
	timer := time.AfterFunc(d, func() {
		a.mu.Lock()
		if a.closed {
			a.mu.Unlock()
			return
		}
		a.running.Add(1)
		a.mu.Unlock()
		defer a.running.Done()
		job(a.ctx)
	})
	return func() { timer.Stop() }
}

// close cancels what runs and waits for it. What was to run later doesn't.
func (a *timers) close() {
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	a.cancel()
	a.running.Wait()
}

// lazyTimer is a timer that may never be needed: only the first in line polls, the others wait to
// be woken. Its zero value isn't armed.
type lazyTimer struct {
	*time.Timer // nil until it is armed
	armed       bool
}

// due is nil, and so never ready, until the timer is armed.
func (t *lazyTimer) due() <-chan time.Time {
	if t.Timer == nil {
		return nil
	}
	return t.C
}

func (t *lazyTimer) arm(d time.Duration) {
	if t.Timer == nil {
		t.Timer = time.NewTimer(d)
	} else {
		t.Reset(d)
	}
	t.armed = true
}

// stop ends it for good.
func (t *lazyTimer) stop() {
	if t.Timer != nil {
		t.Stop()
	}
}
