package queue

import (
	"time"

	"lockproxy/internal/names"
	"lockproxy/lockcmd/script"
)

// HandOver is what a release tells unlock.lua about the waiters here.
type HandOver struct {
	Of      Queue
	Kind    string    // `wanted` of unlock.lua
	Named   []*Waiter // that it is offered to, in order: the first, and those that can share it
	Behind  *Waiter   // the first behind these; nil if a shared lock is not offered
	Compete bool      // foreign clients do
}

// offer decides what a release by an identity does for the waiters here, and marks those that it
// names.
func (q *waitQueue) offer(as names.Identity, foreignCompete bool, now time.Time) HandOver {
	first := q.first()
	switch {
	case first == nil:
		return HandOver{Kind: "none"}
	case foreignCompete:
		return HandOver{Kind: "free"}
	case q.foreignGapDue(now):
		return HandOver{Kind: "gap"}
	case first.IsAll:
		return HandOver{Kind: "all"}
	case first.state != waiting || first.As != as:
		return HandOver{Kind: "self"}
	}
	first.offer()
	first.AskedAt = now
	others, behind := q.offerShared(now)
	offer := HandOver{Kind: "next", Named: append([]*Waiter{first}, others...), Behind: behind}
	if q.quota <= 0 {
		offer.Kind = "fair"
	}
	return offer
}

// Offer decides what a release by an identity does for the waiters of the lock, and marks those
// that it names. If it does not hand over, the first to poll takes the lock. End must follow.
func (q Queue) Offer(as names.Identity, handsOver bool, now time.Time) (offer HandOver) {
	qs := q.all
	qs.mu.Lock()
	defer qs.mu.Unlock()
	e := qs.known(q.id)
	compete := e.foreign.compete(now)
	switch {
	case e.line == nil || e.line.first() == nil:
		offer.Kind = "none"
	case !handsOver:
		offer.Kind = "gap"
	default:
		offer = e.line.offer(as, compete && !e.foreign.makeUp(), now)
	}
	if offer.Kind == "free" {
		e.foreign.leftFree(now) // before anybody hears of it
	}
	offer.Of, offer.Compete = q, compete
	return offer
}

// Nobody is an identity that no waiter has: offer names none.
var Nobody = names.Identity{DB: -1}

// Ends is what is left to do when offers to waiters have ended.
type Ends struct {
	Rejected  []Handed // to waiters that must not keep it: they wait until it is released
	Abandoned []Handed // to waiters that have ended otherwise
}

// Handed is a lock that a waiter was given, or with token 0 may have been given.
type Handed struct {
	*Waiter
	Token int64
}

// abandons is what w was given and may not keep, since it has ended. Its client may have asked again as
// the same owner, and may rely on the same lock by now. A release by the token would take that away. So
// an owner's lock is released as what this request may have been given, unless the owner had it before.
func (w *Waiter) abandons(token int64, renewed bool) Handed {
	if w.Owner != "" && !renewed {
		token = 0
	}
	return Handed{w, token}
}

// endOffers ends one script's offers to waiters. It has given the lock to the first ones, as many
// as given, with tokens from token on. missing is why they must not keep it; err is why the outcome
// is unknown.
func (q *waitQueue) endOffers(
	named []*Waiter, token int64, given int, missing, err error,
) (ends Ends) {
	for i, w := range named {
		t := int64(0)
		if i < given {
			t = token + int64(i)
		}
		switch {
		case t != 0 && missing != nil:
			if w.refuse(missing); !w.has(t) {
				ends.Rejected = append(ends.Rejected, Handed{w, t})
			}
		case !q.endOffer(w, t):
			ends.Abandoned = append(ends.Abandoned, w.abandons(t, false))
		}
		if err != nil {
			w.unknown = true
			if w.ended() && w.state != granted {
				ends.Abandoned = append(ends.Abandoned, Handed{w, 0})
			}
		}
	}
	return ends
}

// Released is what a release has done, by unlock.lua's answer.
type Released struct {
	Done    bool  // the lock was released
	Token   int64 // of the first waiter that was given the lock, 0 if none was
	Given   int   // how many were
	Polls   bool  // the first waiter must poll
	Failed  bool  // the answer is an error
	Unknown error // why it is not known whether it was done
	Missing error // why waiters must not keep the lock that they were given
}

// End ends the offer of a release that was answered, or has failed.
func (h HandOver) End(r Released, now time.Time) Ends {
	qs := h.Of.all
	qs.mu.Lock()
	defer qs.mu.Unlock()
	e := qs.known(h.Of.id)
	e.changed()
	q := e.line
	if q == nil {
		q = &waitQueue{}
	}
	ends := q.endOffers(h.Named, r.Token, r.Given, r.Missing, r.Unknown)
	if r.Token != 0 && len(h.Named) > 0 && h.Named[0].Shared {
		q.shared()
	}
	free := r.Done && r.Token == 0
	if free {
		e.wakeDelayed()
		e.foreign.leftFree(now)
	}
	switch {
	case free && len(h.Named) > 0:
		q.yield(script.Reservation)
	case h.Kind == "gap", h.Kind == "free":
		q.yield(minForeignPoll)
	}
	// A waiter that has joined since polled before the lock was free.
	joined := h.Kind == "none" && !e.foreign.compete(now)
	if r.Failed || r.Polls || joined {
		q.pollNow()
	}
	return ends
}
