package passthrough

import (
	"context"
	"sync"
	"time"

	"lockproxy/internal/loopguard"
)

// askEvery is how often Redis is asked whether it lets new clients in, at most.
const askEvery = time.Second

// doorPatience is how long a client waits for that answer. A server that is silent keeps nobody
// longer.
const doorPatience = 100 * time.Millisecond

// verdict is what Redis says of new clients.
type verdict int

const (
	unknown verdict = iota // it has not answered
	admitted
	refused
)

// door knows whether Redis lets new clients in. Redis lets go on what it has let in before a
// password was set, or a user switched off, so that no connection which is open already can tell.
// Its zero value is ready.
type door struct {
	mu    sync.Mutex
	begun time.Time     // guarded by mu; when Redis was asked last
	done  chan struct{} // guarded by mu; closed when it has answered, or never will; nil at first
	last  verdict       // guarded by mu; unknown until done is closed
	hangs bool          // guarded by mu; a client gave up waiting for this answer
}

// ask returns what Redis has said within askEvery. It has run call, by which Redis is asked on a
// connection of its own, and waits for it for up to doorPatience. start runs a function on a
// goroutine.
func (d *door) ask(start func(func()), call func() verdict) verdict {
	loopguard.MayWait()
	d.mu.Lock()
	answered := d.done != nil && isClosed(d.done)
	if d.done == nil || answered && time.Since(d.begun) >= askEvery {
		silent := answered && d.last == unknown
		d.begun, d.done, d.last, d.hangs = time.Now(), make(chan struct{}), unknown, silent
		done := d.done
		start(func() {
			got := call()
			d.mu.Lock()
			defer d.mu.Unlock()
			d.last = got
			close(done)
		})
	}
	done, hangs := d.done, d.hangs
	d.mu.Unlock()
	if !hangs {
		patience := time.NewTimer(doorPatience)
		defer patience.Stop()
		select {
		case <-done:
		case <-patience.C:
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.done == done {
		d.hangs = !isClosed(done)
	}
	return d.last
}

// admits is what Redis says of new clients, no longer than askEvery ago. It can wait for that.
func (p *Pool) admits() verdict { return p.door.ask(p.goroutines.Go, p.askDoor) }

// askDoor asks Redis, on a connection of its own, whether it lets new clients in. So it also finds
// out where new connections lead.
func (p *Pool) askDoor() verdict {
	ctx, cancel := context.WithTimeout(p.ctx, p.DialTimeout)
	defer cancel()
	server, err := p.Upstream.StillAdmits(ctx)
	switch {
	case ctx.Err() != nil:
		return unknown
	case err != nil:
		return refused
	}
	if !p.Upstream.IsCluster() {
		p.found(server)
	}
	return admitted
}

func isClosed(done chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}
