package passthrough

import (
	"context"
	"sync"
	"time"

	"lockproxy/internal/eventloop"
	"lockproxy/internal/loopguard"
	"lockproxy/internal/upstream"
)

// saidFor is for how long what Redis has said of new clients holds. It is asked again when half of
// that has passed, so that clients which come all the time do not wait for it.
const saidFor = time.Second

// verdict is what Redis says of new clients.
type verdict int

const (
	unknown verdict = iota // it has not answered
	admitted
	refused    // it lets in none, or cannot be reached
	loginFirst // it lets in those that log in
)

// door knows whether Redis lets new clients in. Redis lets go on what it has let in before a
// password was set, or a user switched off, so that no connection which is open already can tell.
// Its zero value is ready.
type door struct {
	mu    sync.Mutex
	asked uint64        // guarded by mu; how often Redis was asked, also by the way: see asks
	begun time.Time     // guarded by mu; when Redis was asked last
	done  chan struct{} // guarded by mu; closed when it has answered, or never will; nil at first
	hangs bool          // guarded by mu; a client gave up waiting for this answer
	last  verdict       // guarded by mu; what it said last; unknown if it did not
	of    time.Time     // guarded by mu; when it was asked for that
	lastN uint64        // guarded by mu; which question that was
	goodN uint64        // guarded by mu; the last question to which it said admitted
	// guarded by mu; asks because of a client in doubt; nil for none
	soon   *time.Timer
	closed bool // guarded by mu
}

// doubt is of a client that came after Redis was asked whether it lets clients in: which question
// that was, from 1. 0 is no doubt.
type doubt uint64

// ask returns what Redis has said within saidFor, and whether a client that comes now is to be judged
// again: see since. It has run call, by which Redis is asked on a connection of its own, and waits
// for it, no longer than patience. start runs a function on a goroutine.
func (d *door) ask(
	patience time.Duration, start func(func()), call func() verdict,
) (said verdict, of doubt) {
	loopguard.MayWait()
	d.mu.Lock()
	before := d.asked
	d.askLocked(start, call)
	known, last, done, hangs := d.last != unknown && time.Since(d.of) < saidFor, d.last, d.done, d.hangs
	if known && last == admitted && d.asked == before {
		d.askSoonLocked(start, call)
	}
	d.mu.Unlock()
	switch {
	case known:
		return last, doubt(before)
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
	switch {
	case d.hangs:
		return unknown, 0
	case d.lastN <= before:
		of = doubt(before)
	}
	return d.last, of
}

// since is what Redis has said to a question that was asked after a client had come with a doubt:
// admitted or loginFirst. It is unknown while Redis has said neither. Then Redis is asked, if it is
// time. since does not wait.
func (d *door) since(of doubt, start func(func()), call func() verdict) verdict {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.goodN > uint64(of):
		return admitted
	case d.lastN > uint64(of) && d.last == loginFirst:
		return loginFirst
	}
	d.askLocked(start, call)
	return unknown
}

// askSoonLocked asks Redis when it is time: a client is in doubt, which may itself be about to set a
// password. mu is held.
func (d *door) askSoonLocked(start func(func()), call func() verdict) {
	if d.soon != nil || d.closed {
		return
	}
	d.soon = time.AfterFunc(saidFor/2-time.Since(d.begun), func() { // close stops it
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.soon = nil; !d.closed {
			d.askLocked(start, call)
		}
	})
}

// close has nothing asked any more that nobody waits for.
func (d *door) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	if d.soon != nil {
		d.soon.Stop()
	}
}

// askLocked asks Redis, unless that was done just now. mu is held.
func (d *door) askLocked(start func(func()), call func() verdict) {
	answered := d.done != nil && isClosed(d.done)
	if d.done != nil && (!answered || time.Since(d.begun) < saidFor/2) {
		return
	}
	d.hangs = answered && d.last == unknown
	q, done := d.asksLocked(), make(chan struct{})
	d.begun, d.done = q.begun, done
	start(func() {
		got := call()
		d.mu.Lock()
		defer d.mu.Unlock()
		d.answeredLocked(q, got)
		close(done)
	})
}

// question is one that Redis is asked by a new connection, or one that is made as new.
type question struct {
	n     uint64
	begun time.Time
}

// asks records that Redis is about to be asked by the way, by a connection that is opened for another
// reason.
func (d *door) asks() question {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.asksLocked()
}

func (d *door) asksLocked() question {
	d.asked++
	return question{d.asked, time.Now()}
}

// shows records what a connection shows that Redis has opened, or reset: nobody says that Redis
// demands a login there. RESET says nothing of whether Redis takes further connections.
func (d *door) shows(q question, nobody, opened bool) {
	said := admitted
	if nobody {
		said = loginFirst
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if opened || nobody || d.last != refused {
		d.answeredLocked(q, said)
	} else {
		d.goodN = max(d.goodN, q.n)
	}
}

func (d *door) answeredLocked(q question, said verdict) {
	if q.n > d.lastN { // otherwise something newer is known
		d.last, d.of, d.lastN = said, q.begun, q.n
	}
	if said == admitted {
		d.goodN = max(d.goodN, q.n)
	}
}

// judged is how often Redis was asked, the last question that it has answered, and the last after which
// it let the new connection in.
func (d *door) judged() (asked, answered, good uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.asked, d.lastN, d.goodN
}

// admits is what Redis says of new clients, no longer than saidFor ago. It can wait for that.
func (p *Pool) admits() (said verdict, of doubt) {
	return p.door.ask(p.patience(), p.goroutines.Go, p.askDoor)
}

// mustLogIn reports whether Redis has said since the client came that clients must log in first: what
// has let this one in was said before. It does not wait.
func (c *client) mustLogIn() bool {
	of := c.doubt.Load()
	if of == 0 {
		return false
	}
	said := c.pool.door.since(doubt(of), c.pool.goroutines.Go, c.pool.askDoor)
	if said == admitted {
		c.doubt.Store(0)
	}
	return said == loginFirst
}

// judgeAgainLocked has Redis itself judge a client that must log in, by a new connection. In an event
// loop it reports false if it would have to wait. mu is held, but not while it waits.
func (p *Pipe) judgeAgainLocked(it *eventloop.Iteration) (done bool) {
	switch {
	case !p.lanes.leaveLaneLocked(it):
		return false
	case p.c.pending.own():
		p.c.doubt.Store(0) // Redis has judged that login
	case p.c.isHeldLocked():
		// later: what is under way is the home's
	case !p.c.pending.empty():
		return it == nil // otherwise the session awaits it: see AwaitsJudgement
	case p.c.pending.replaceable():
		p.c.doubt.Store(0)
		p.c.pending.Admitted = false
		if p.c.home != nil {
			p.c.home.Close()
			p.c.home = nil
		}
	default:
		p.c.closeLocked(ErrClosed)
	}
	return true
}

// isHeldLocked reports whether what is under way must go by the home that there is. mu is held.
func (c *client) isHeldLocked() bool {
	return c.needsHome.pinned || c.needsHome.kept || c.needsHome.open || c.pending.fresh
}

// AwaitsJudgement reports whether Redis can judge the client again only once what the home owes has
// come. A client that never lets its home owe nothing would never be judged.
func (p *Pipe) AwaitsJudgement() bool {
	if !p.c.mustLogIn() {
		return false
	}
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	return p.c.route == byHome && !p.c.pending.own() && !p.c.isHeldLocked() && !p.c.pending.empty()
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
	case upstream.IsLoginDemand(err):
		return loginFirst
	case err != nil:
		return refused
	}
	p.found(server)
	return admitted
}
