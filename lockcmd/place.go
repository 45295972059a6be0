package lockcmd

import (
	"context"
	"fmt"
	"sync"
	"time"

	"lockproxy/internal/names"
	"lockproxy/internal/resp"
	"lockproxy/lockcmd/chain"
	"lockproxy/lockcmd/failure"
	"lockproxy/lockcmd/held"
	"lockproxy/lockcmd/queue"
	"lockproxy/lockcmd/script"
	"lockproxy/lockcmd/syntax"
)

// places are those in the lines of locks whose clients do not wait (LOCK … PLACE). A place is a
// waiter of the proxy's own. When it is first and the lock is free, it takes the lock under a name
// that no client has, for no longer than it is kept. The client's next LOCK takes that lock over.
type places struct {
	mu sync.Mutex
	of map[placeID]*place // guarded by mu
}

// maxPlaces bounds the places of a proxy: with owners' names one client can have many.
const maxPlaces = 65536

// placeID says whose a place is: that of an owner, or of a connection.
type placeID struct {
	as       names.Identity
	key, who string
	limit    int64 // -1 of an exclusive lock
}

func placeOf(c Client, r script.Request) placeID {
	id := placeID{as: c.As, key: r.Key, who: "owner " + r.Owner, limit: -1}
	if r.Owner == "" {
		id.who = "connection " + r.Connection
	}
	if r.Shared {
		id.limit = r.Limit
	}
	return id
}

// place is one of them.
type place struct {
	*waits
	id placeID
	w  *queue.Waiter

	going sync.Mutex // held by the job that takes it on
	first bool       // guarded by going: it may ask at once, as its first step
	turn  *turn      // guarded by going; nil before it has asked
	later func()     // guarded by going; cancels the next job

	err error // guarded by places.mu; why it has ended, for its client
}

// placeStep is LOCK … PLACE.
func (l *waits) placeStep(c Client, r script.Request, keep time.Duration) *Step {
	id := placeOf(c, r)
	p, token, err := l.places.ask(id, keep)
	switch {
	case err != nil:
		return chain.Answered(chain.Failed(err))
	case token != 0:
		return l.takeOver(c, r, keep, p, token)
	case p != nil:
		return chain.Answered(chain.Null)
	}
	return l.tryStep(c, r, func(a script.Attempt, err error) (Reply, *Step) {
		if err == nil && a.Token == 0 {
			if err = l.keepPlace(id, r, keep); err == nil {
				return chain.Null, nil
			}
		}
		return l.tried(c, lockRequests{r}, a, err)
	})
}

// ask finds a client's place, which is kept for longer, and the token of the lock if it has taken
// that. The error is why it has ended.
func (ps *places) ask(id placeID, keep time.Duration) (p *place, token int64, err error) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if p = ps.of[id]; p == nil {
		return nil, 0, nil
	}
	if p.err != nil {
		delete(ps.of, id)
		return nil, 0, p.err
	}
	p.w.Keep(keep, time.Now())
	return p, p.w.Given(), nil
}

// keepPlace puts a client into the line.
func (l *waits) keepPlace(id placeID, r script.Request, keep time.Duration) error {
	ps := &l.places
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if p := ps.of[id]; p != nil { // by another request of the pipeline
		p.w.Keep(keep, time.Now())
		return nil
	}
	if len(ps.of) >= maxPlaces {
		return syntax.UsageError(fmt.Sprintf("ERR this proxy keeps %d places already: "+
			"ask without PLACE, or through another proxy", maxPlaces))
	}
	r.Connection += "p" + r.Number
	r.Session, r.Longest = false, 0
	w, at := l.queues.Join(r, id.as, keep, time.Now())
	w.Keep(keep, time.Now())
	p := &place{waits: l, id: id, w: w, first: at.First && !at.ForeignTurn, later: func() {}}
	if ps.of == nil {
		ps.of = map[placeID]*place{}
	}
	ps.of[id] = p
	p.wake()
	return nil
}

// wake takes the place on, in a job of its own.
func (p *place) wake() { p.Timers.After(0, p.goOn) }

// goOn is a job that takes the place on.
func (p *place) goOn(ctx context.Context) {
	p.going.Lock()
	defer p.going.Unlock()
	p.later()
	if p.turn == nil {
		p.begin(ctx)
	}
	t := p.turn
	if t.phase == outside {
		return
	}
	if t.phase == inQueue {
		t.over = moment{p.w.Until()}
	}
	reply, progress := t.Go(ctx, false)
	if progress == chain.Sleeps {
		p.later = p.Timers.After(time.Until(t.Due()), p.goOn)
		return
	}
	p.end(reply)
}

// begin asks for the first time.
func (p *place) begin(ctx context.Context) {
	h := &held.Holder{Connection: p.w.Connection, Addr: p.w.Client}
	s := session{Client{Holder: h, As: p.id.as}, placeUpstream{p, ctx}}
	pause, err := notPolled, error(nil)
	if p.first {
		pause, err = p.pollOrPause(s, p.w)
	} else if at := p.w.State(); at.First {
		pause = p.pollInterval(p.w, at.Lease)
	}
	s = p.own(p.Timers.Ctx, s, p.w.Wait)
	p.turn = p.beginTurn(s, p.w.Wait, oneLock{p.waits, s, p.w}, 0, pause, p.wake, err)
}

// end follows the wait. A lock that it has taken is released unless the client asks for it in time.
// What its owner had already is no place's.
func (p *place) end(reply Reply) {
	ps := &p.places
	ps.mu.Lock()
	defer ps.mu.Unlock()
	switch {
	case p.w.Given() != 0:
		p.Timers.After(time.Until(p.w.Until()), p.lapse)
		return
	case reply.Kind == chain.IntReply:
		p.releases.startRelease(lockOf(p.w, reply.Int), func() {})
	case failure.IsDeadlock(reply.Err):
		p.err = reply.Err
		p.Timers.After(time.Until(p.w.Until()), func(context.Context) { ps.drop(p) })
		return
	}
	if ps.of[p.id] == p {
		delete(ps.of, p.id)
	}
}

// drop ends a place. It reports whether that had not ended.
func (ps *places) drop(p *place) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.of[p.id] != p {
		return false
	}
	delete(ps.of, p.id)
	return true
}

// lapse releases the lock of a client that has not asked in time. If it has just asked, the lock is
// the client's by now, and the release finds that.
func (p *place) lapse(context.Context) {
	if rest := time.Until(p.w.Until()); rest > 0 {
		p.Timers.After(rest, p.lapse)
	} else if p.places.drop(p) {
		p.releases.startRelease(lockOf(p.w, p.w.Given()), func() {})
	}
}

// takeOver gives a client what its place has taken. If that has lost it, the client begins anew.
func (l *waits) takeOver(
	c Client, r script.Request, keep time.Duration, p *place, token int64,
) *Step {
	if rest := l.heldOff(); rest > 0 {
		return chain.Answered(chain.Failed(failure.HeldOffError(rest)))
	}
	lock, asked := &held.Lock{Request: r, As: c.As, Token: token}, time.Now()
	call := l.Scripts.TakeOver(lock.ID(), token, r)
	return &Step{Call: call, Finish: func(answer script.Answer, err error) (Reply, *Step) {
		done, err := call.Ints(1, answer, err)
		a := script.Attempt{Token: token, Given: 1, Exclusive: !r.Shared, Renewed: true, AskedAt: asked}
		if err != nil {
			return l.failed(c, lockRequests{r}, script.Attempt{}, err)
		}
		l.places.drop(p)
		if done[0] == 0 {
			return Reply{}, l.placeStep(c, r, keep)
		}
		if err := l.notConfirmed(&answer, call.Confirm); err != nil {
			return l.failed(c, lockRequests{r}, a, err)
		}
		return l.acquired(c.Holder, []*held.Lock{lock}, a), nil
	}}
}

// placeUpstream asks for a place, for which no client's connection does.
type placeUpstream struct {
	*place
	ctx context.Context
}

// Eval implements chain.Upstream.
func (u placeUpstream) Eval(c *script.Call) (script.Answer, error) {
	return u.Clients.On(u.ctx, u.id.as, u.id.key, c.Until).Eval(c)
}

// Get implements chain.Upstream.
func (u placeUpstream) Get(key string, until time.Time) (resp.Value, error) {
	return u.Clients.On(u.ctx, u.id.as, u.id.key, until).Get(key)
}
