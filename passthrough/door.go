package passthrough

import (
	"context"
	"sync"
	"time"

	"lockproxy/internal/loopguard"
)

// saidFor is for how long what Redis has said of new clients holds. It is asked again when half of
// that has passed, so that clients which come all the time do not wait for it.
const saidFor = time.Second

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
	hangs bool          // guarded by mu; a client gave up waiting for this answer
	last  verdict       // guarded by mu; what it said last; unknown if it did not
	of    time.Time     // guarded by mu; when it was asked for that
}

// ask returns what Redis has said within saidFor. It has run call, by which Redis is asked on a
// connection of its own, and waits for it, no longer than patience. start runs a function on a
// goroutine.
func (d *door) ask(patience time.Duration, start func(func()), call func() verdict) verdict {
	loopguard.MayWait()
	d.mu.Lock()
	answered := d.done != nil && isClosed(d.done)
	if d.done == nil || answered && time.Since(d.begun) >= saidFor/2 {
		d.hangs = answered && d.last == unknown
		d.beginLocked(start, call)
	}
	known, last := d.last != unknown && time.Since(d.of) < saidFor, d.last
	done, hangs := d.done, d.hangs
	d.mu.Unlock()
	switch {
	case known:
		return last
	case !hangs:
		timer := time.NewTimer(patience)
		defer timer.Stop()
		select {
		case <-done:
		case <-timer.C:
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.done == done {
		d.hangs = !isClosed(done)
	}
	if d.hangs {
		return unknown
	}
	return d.last
}

// beginLocked has call run. mu is held.
func (d *door) beginLocked(start func(func()), call func() verdict) {
	begun, done := time.Now(), make(chan struct{})
	d.begun, d.done = begun, done
	start(func() {
		got := call()
		d.mu.Lock()
		defer d.mu.Unlock()
		d.last, d.of = got, begun
		close(done)
	})
}

// admits is what Redis says of new clients, no longer than saidFor ago. It can wait for that.
func (p *Pool) admits() verdict {
	return p.door.ask(p.patience(), p.goroutines.Go, p.askDoor)
}

// askDoor asks Redis, on a connection of its own, whether it lets new clients in. So it also finds
// out where new connections lead.
func (p *Pool) askDoor() verdict {
	ctx, cancel := context.WithTimeout(p.ctx, p.DialTimeout)
	defer cancel()
	begun := time.Now()
	server, err := p.Upstream.StillAdmits(ctx)
	if err == nil {
		p.opening.took(time.Since(begun))
	}
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
