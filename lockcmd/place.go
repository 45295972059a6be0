package lockcmd

import (
	"context"
	"fmt"
	"sync"
	"time"

	"lockproxy/internal/loopguard"
	"lockproxy/internal/names"
	"lockproxy/internal/resp"
	"lockproxy/lockcmd/failure"
	"lockproxy/lockcmd/held"
	"lockproxy/lockcmd/queue"
	"lockproxy/lockcmd/script"
	"lockproxy/lockcmd/syntax"
)

// places are those in the lines of locks whose clients do not wait (LOCK … PLACE).
type places struct {
	*waits
	mu sync.Mutex
	of map[placeID]*place // guarded by mu
}

// maxPlaces bounds the places of a proxy: with owners' names one client can have many.
const maxPlaces = 65536

// maxPlaceText bounds what a place keeps of its client, bytes: its key and OWNER. A NOTE is short.
const maxPlaceText = 1024

// placeID says whose a place is: that of an owner, or of a connection.
type placeID struct {
	as                     names.Identity
	key, owner, connection string
	shared                 bool
	limit                  int64
}

// place is a client of the proxy's own that waits, with a turn as others have. It is gone when its
// time is over. It takes the lock under a name that no client has, for as long as it is kept. The
// next LOCK of its client takes that lock over.
type place struct {
	places *places
	id     placeID
	w      *queue.Waiter
	sleep  *Step // of its turn: it asks for nothing

	// Guarded by places.mu:
	step  *Step  // nil once it no longer waits
	reply Reply  // then: the lock's token, or a deadlock
	later func() // cancels the job that goes on next
}

// placeEnds is the pause before a place is looked at again that was given its lock while it asked.
const placeEnds = 5 * time.Millisecond

// placeStep is LOCK … PLACE.
func (ps *places) placeStep(c Client, r script.Request, keep time.Duration) (Reply, *Step) {
	id := placeID{c.As, r.Key, r.Owner, r.Connection, r.Shared, r.Limit}
	if r.Owner != "" {
		id.connection = ""
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if p := ps.of[id]; p != nil {
		p.advance()
	}
	p, held := ps.of[id], ps.heldOff()
	if p == nil {
		rs := lockRequests{r}
		return Reply{}, ps.tryStep(c, rs, false, func(a script.Attempt, err error) (Reply, *Step) {
			if err == nil && a.Token == 0 {
				err = ps.takePlace(id, r, keep)
			}
			return ps.tried(c, rs, a, err)
		})
	}
	p.w.Keep(time.Now().Add(keep))
	switch {
	case p.step != nil && p.w.State().Has: // a question of its own ends yet
		return Reply{}, &Step{Asks: Pause(placeEnds), Finish: func(
			script.Answer, error,
		) (Reply, *Step) {
			return ps.placeStep(c, r, keep)
		}}
	case p.step != nil:
		if err, _ := p.w.Outage(time.Now()); err != nil {
			return errorReply(err), nil
		}
		return valueReply(resp.Null), nil
	case p.reply.Err == nil && held > 0:
		return errorReply(failure.HeldOffError(held)), nil
	}
	delete(ps.of, id)
	if p.reply.Err != nil {
		return p.reply, nil
	}
	return Reply{}, ps.takeOver(c, r, keep, p)
}

// takePlace puts a client into the line, unless another LOCK has done so meanwhile.
func (ps *places) takePlace(id placeID, r script.Request, keep time.Duration) error {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	switch {
	case ps.of[id] != nil:
		return nil
	case len(ps.of) >= maxPlaces:
		return syntax.UsageError(fmt.Sprintf("ERR this proxy keeps %d places already: "+
			"ask without PLACE, or through another proxy", maxPlaces))
	case len(r.Key)+len(r.Owner) > maxPlaceText:
		return syntax.UsageError(fmt.Sprintf("ERR the key and OWNER have %d bytes, and of a place "+
			"they can have %d: ask without PLACE", len(r.Key)+len(r.Owner), maxPlaceText))
	}
	r.Connection += "p" + r.Number // take.lua knows a place by that
	r.Session, r.Longest = false, 0
	w, at := ps.queues.Join(r, id.as, keep, time.Now())
	w.Keep(time.Now().Add(keep))
	p := &place{places: ps, id: id, w: w, later: func() {}}
	h := &held.Holder{Connection: r.Connection, Addr: r.Client}
	t := ps.newTurn(Client{Holder: h, As: id.as, Waker: p}, w.Wait, 0)
	t.by, t.silent, p.sleep = oneLock{ps.waits, w}, true, t.sleep
	pause := notPolled
	if at.ForeignTurn {
		pause = queue.IdlePause()
	} else if at.First {
		pause = 0
	}
	p.step = &Step{Asks: Turn{},
		Finish: func(script.Answer, error) (Reply, *Step) { return t.begin(pause, nil) }}
	ps.of[id] = p
	p.Wake()
	return nil
}

// Wake has the place go on, in a job of its own.
func (p *place) Wake() { p.places.Timers.After(0, p.goOn) }

func (p *place) goOn(context.Context) {
	p.places.mu.Lock()
	defer p.places.mu.Unlock()
	p.advance()
}

// advance takes the place on. A lock that it has taken is released unless the client asks for it in
// time. A lock that its owner had before the place stays the owner's. places.mu is held.
func (p *place) advance() {
	p.later()
	due, gone := p.w.Until(), error(nil)
	if !time.Now().Before(due) {
		due, gone = time.Time{}, failure.ErrGone
	}
	if p.step != nil {
		p.reply, p.step = p.step.Finish(script.Answer{}, gone)
	}
	// A login that is refused has the place ask by its client's connection, and it has none.
	for p.step != nil && p.step.Asks != Asks(Turn{}) {
		p.reply, p.step = p.step.Finish(script.Answer{}, failure.ErrUnanswered)
	}
	if p.step != nil && p.step == p.sleep && p.w.State().Ended { // nobody wakes it for that
		p.reply, p.step = p.step.Finish(script.Answer{}, gone)
	}
	has := p.reply.Type == ':'
	switch {
	case p.step != nil:
		if at := p.step.Until; due.IsZero() || !at.IsZero() && at.Before(due) {
			due = at
		}
	case p.places.of[p.id] != p: // its client has what it had
		return
	case gone != nil, has && p.w.Renewed, !has && !failure.IsDeadlock(p.reply.Err):
		if delete(p.places.of, p.id); has {
			p.places.releases.startRelease(lockOf(p.w, p.reply.Int), func() {})
		}
		return
	}
	if !due.IsZero() {
		p.later = p.places.Timers.After(max(time.Until(due), time.Millisecond), p.goOn)
	}
}

// leave ends all places, with the proxy, and releases the locks that they have. The answer to a
// question can give a place its lock: so it waits for the answers, until over.
func (ps *places) leave(over context.Context) {
	loopguard.MayWait()
	for asking := true; asking && over.Err() == nil; {
		var list []*held.Lock
		list, asking = ps.endQuiet()
		ps.releases.releaseAbandoned(over, list...)
		if asking {
			time.Sleep(5 * time.Millisecond)
		}
	}
}

// endQuiet ends the places that ask for nothing now, and returns their locks. asking says that
// others are left.
func (ps *places) endQuiet() (list []*held.Lock, asking bool) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for id, p := range ps.of {
		if p.step != nil && p.step == p.sleep { // a release can be about to give it the lock
			p.w.Keep(time.Now())
			p.advance()
		}
		switch {
		case p.step != nil:
			asking = true
			continue
		case p.reply.Int != 0:
			list = append(list, lockOf(p.w, p.reply.Int))
		}
		delete(ps.of, id)
	}
	return list, asking
}

// back has a place kept further whose lock its client was refused, and reports whether that is so.
func (ps *places) back(p *place) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.of[p.id] != nil {
		return false
	}
	ps.of[p.id] = p
	p.advance()
	return true
}

// takeOver gives a client the lock that its place has taken. If the place has lost that lock, or
// its owner was given it by another LOCK, too, the client asks as if it had no place. If Redis
// refuses it, the place goes on: an owner's next LOCK would find the lock, and keep the place's
// lease.
func (ps *places) takeOver(c Client, r script.Request, keep time.Duration, p *place) *Step {
	from := lockOf(p.w, p.reply.Int)
	lock := &held.Lock{Request: r, As: c.As, Token: from.Token}
	call := ps.Scripts.TakeOver(lock.ID(), lock.Token, from.Connection, r)
	a := script.Attempt{Token: lock.Token, Given: 1, Exclusive: !r.Shared, Renewed: true,
		AskedAt: time.Now()}
	return &Step{Asks: Script{call}, Finish: func(answer script.Answer, err error) (Reply, *Step) {
		switch done, err := call.Ints(1, answer, err); {
		case err != nil:
			if failure.MayHaveRun(err) || !ps.back(p) {
				ps.releases.startRelease(from, func() {})
			}
			return ps.failed(c, lockRequests{r}, script.Attempt{}, err)
		case done[0] == 0:
			ps.releases.startRelease(from, func() {}) // of its owner it is one connection
			return ps.placeStep(c, r, keep)
		}
		if err := ps.notConfirmed(&answer, call.Confirm); err != nil {
			return ps.failed(c, lockRequests{r}, a, err)
		}
		return ps.acquired(c.Holder, []*held.Lock{lock}, a), nil
	}}
}
