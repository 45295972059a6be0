package lockcmd

import (
	"context"
	"sync"
	"time"
)

// timers runs jobs at their times, each in a new goroutine, until it is closed.
type timers struct {
	ctx        context.Context
	cancel     context.CancelFunc
	goroutines sync.WaitGroup

	mu     sync.Mutex
	closed bool
}

func newTimers() *timers {
	t := &timers{}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t
}

// after runs job after d, unless cancel is called first or t is closed. The job must end with its
// ctx.
func (t *timers) after(d time.Duration, job func(ctx context.Context)) (cancel func()) {
	timer := time.AfterFunc(d, func() {
		t.mu.Lock()
		if t.closed {
			t.mu.Unlock()
			return
		}
		t.goroutines.Add(1)
		t.mu.Unlock()
		defer t.goroutines.Done()
		job(t.ctx)
	})
	return func() { timer.Stop() }
}

// close cancels the jobs that run, and waits for them. Others never run.
func (t *timers) close() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.cancel()
	t.goroutines.Wait()
}

// lazyTimer is a timer that is made when it is armed. Its zero value is not armed.
type lazyTimer struct {
	*time.Timer // nil until it is armed
	armed       bool
	at          time.Time // when it is due, if it is armed
}

// timerAfter is a timer that is due after d, or never if d is 0.
func timerAfter(d time.Duration) (t lazyTimer) {
	if d > 0 {
		t.arm(d)
	}
	return t
}

// due is nil, so never ready, until the timer is armed.
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
	t.armed, t.at = true, time.Now().Add(d)
}

// armSooner arms it, unless it is due sooner.
func (t *lazyTimer) armSooner(d time.Duration) {
	if !t.armed || time.Until(t.at) > d {
		t.arm(d)
	}
}

// stop ends it for good.
func (t *lazyTimer) stop() {
	if t.Timer != nil {
		t.Stop()
	}
}
