package background

import (
	"context"
	"sync"
	"time"

	"lockproxy/internal/loopguard"
)

// timers runs jobs at their times, each in a new goroutine, until it is closed.
type timers struct {
	Ctx        context.Context
	cancel     context.CancelFunc
	goroutines sync.WaitGroup

	mu     sync.Mutex
	closed bool
}

func NewTimers() *timers {
	t := &timers{}
	t.Ctx, t.cancel = context.WithCancel(context.Background())
	return t
}

// After runs job after d, unless cancel is called first or t is closed. The job must end with its
// ctx.
func (t *timers) After(d time.Duration, job func(ctx context.Context)) (cancel func()) {
	timer := time.AfterFunc(d, func() {
		t.mu.Lock()
		if t.closed {
			t.mu.Unlock()
			return
		}
		t.goroutines.Add(1)
		t.mu.Unlock()
		defer t.goroutines.Done()
		job(t.Ctx)
	})
	return func() { timer.Stop() }
}

// Close cancels the jobs that run, and waits for them. Others never run.
func (t *timers) Close() {
	loopguard.MayWait()
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.cancel()
	t.goroutines.Wait()
}
