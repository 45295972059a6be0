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
