package queue

import (
	"cmp"
	"time"

	"lockproxy/lockcmd/failure"
	"lockproxy/lockcmd/script"
)

// PollInterval is the time to the next poll of w, which is first, if the lock ends after remaining.
// followed says that Tracking follows it.
func (w *Waiter) PollInterval(
	remaining time.Duration, followed bool, now time.Time,
) time.Duration {
	pause, qs := IdlePause(), w.queues
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if !followed && qs.known(w.ID()).foreign.compete(now) {
		pause = jitter(minForeignPoll, maxForeignPoll)
	}
	if w.line.claims.pending {
		pause = min(pause, max(w.line.claims.due.Sub(now), 0))
	}
	// Expired means now >= value, on a clock of whole milliseconds.
	return min(pause, max(remaining-qs.ways.RoundTrip(w.Key), 0)+time.Millisecond)
}

// BeforeTry is what a script that asks for the lock must know: whether foreign clients compete for
// it, whether clients wait here, and since when a LOCKALL among them does; 0 is none.
func (q Queue) BeforeTry(now time.Time) (compete, waited bool, allSince int64) {
	q.all.mu.Lock()
	defer q.all.mu.Unlock()
	e := q.all.known(q.id)
	if e.line != nil {
		allSince = e.line.allSince()
	}
	return e.foreign.compete(now), e.line != nil, allSince
}

// BeginPoll notes that w, which is first in its lines, polls now. again says that only time has
// passed since its last poll. others are the waiters behind it that are offered a shared lock with
// it, behind is the first that is not.
func (w *Waiter) BeginPoll(now time.Time) (again bool, others []*Waiter, behind *Waiter) {
	w.queues.mu.Lock()
	defer w.queues.mu.Unlock()
	again = w.Polled && !w.pollNow
	w.Polled = true
	for _, one := range w.Waiters {
		one.pollNow = false
		if one.isFirst() {
			q := one.line
			if !again {
				q.news = now
			}
			q.claims.look(now)
			others, behind = q.offerShared(now)
		}
	}
	return again, others, behind
}

// quietAfter is for how long nothing must have happened to a lock before it is tracked: tracking
// one that changes all the time would cost more than it saves.
const quietAfter = 700 * time.Millisecond

// Quiet reports whether nothing has happened to the lock of w, which is first, for quite a while,
// as far as this proxy knows, and that it would hear of a release. A value that w waits for can
// change without its lock, and others can be let in to a shared lock until they know that w waits.
func (w *Waiter) Quiet(now time.Time) bool {
	qs := w.queues
	hears := qs.hears(w.Key)
	qs.mu.Lock()
	defer qs.mu.Unlock()
	return hears && w.Polled && !w.pollNow && !w.Once && !w.line.heldShared &&
		now.Sub(w.line.news) >= quietAfter && !qs.known(w.ID()).foreign.compete(now)
}

// EndPoll notes what a poll of w has found. has says that w has the lock: by this poll, or by a
// release while it was under way.
func (w *Waiter) EndPoll(a script.Attempt, now time.Time) (has bool) {
	w.queues.mu.Lock()
	defer w.queues.mu.Unlock()
	w.line.heldShared = a.HeldShared
	w.line.listed = w.line.listed || a.Token == 0 && !a.Foreign
	if w.state == granted {
		return true
	}
	if a.Foreign {
		w.queues.sawLocked(w.ID(), now).won()
	}
	return false
}

// EndShared ends the offers to waiters behind w of a poll for a shared lock. missing is why they
// must not keep it; unknown is why the outcome is not known.
func (w *Waiter) EndShared(others []*Waiter, a script.Attempt, missing, unknown error) Ends {
	w.queues.mu.Lock()
	defer w.queues.mu.Unlock()
	ends := w.line.endOffers(others, a.Token+1, a.Given-1, missing, unknown)
	if a.Token != 0 {
		w.line.shared()
	}
	return ends
}

// Settle gives w the lock, or all of a LOCKALL's, that a poll or a check has taken for it, unless
// it must not keep it because of err, or has ended otherwise meanwhile. kept is false if the caller
// must take it back. refused is the error for w's client, nil if w was not refused.
func (w *Waiter) Settle(a script.Attempt, err error) (kept bool, refused error) {
	w.queues.mu.Lock()
	defer w.queues.mu.Unlock()
	return w.settle(a, err), w.rejected
}

// settle is Settle. Queues.mu is held.
func (w *Waiter) settle(a script.Attempt, err error) (kept bool) {
	switch {
	case a.Token == 0: // nothing was taken
		return true
	case w.state == granted && a.Token <= w.Token:
		// By a release, while this was under way: this has found that, or was forced by it.
		return true
	case w.told: // and this has come too late
		return false
	case w.state == granted && err == nil:
		// That lease has ended, and this was taken then. With the other token its client could not
		// release the lock.
		w.Attempt, w.Handed = a, false
		return true
	case err != nil && a.Renewed && w.state != granted: // its owner has it as before
		return false
	case err != nil:
		if w.endAgain(left) {
			w.rejected = err
		}
		return false
	case w.ended():
		return false
	}
	for _, one := range w.Waiters {
		if !a.Renewed {
			one.line.quota = 0
		}
		one.Attempt = a
		one.line.grant(one, a.Token)
	}
	return true
}

// SettleLate takes the answer to a script that was asked again meanwhile, for w's wait, and perhaps
// for others that share the lock with w. It returns what they may not keep, also what they may have
// been given if it mayHaveRun without an answer.
func (w *Waiter) SettleLate(
	a script.Attempt, others []*Waiter, err error, mayHaveRun bool,
) (list []Handed) {
	w.queues.mu.Lock()
	defer w.queues.mu.Unlock()
	for i, one := range append([]*Waiter{w}, others...) {
		if i > 0 {
			a.Token++
			a.Renewed, a.Before = false, false
		}
		token, abandoned := a.Token, false
		switch {
		case a.Token <= int64(i):
			// An owner may have had the lock before, so it keeps it. A waiter whose client has no
			// reply yet may still find out by its next poll; otherwise the end of the wait releases
			// the lock.
			token = 0
			switch {
			case !mayHaveRun || one.Owner != "":
			case !one.told:
				one.unknown = true
			default:
				abandoned = one.state != granted
			}
		case i > 0 && i >= a.Given:
		default:
			abandoned = !one.settle(a, err) && !a.Before
		}
		for _, lock := range one.Waiters {
			if abandoned {
				list = append(list, lock.abandons(token, a.Renewed))
			}
		}
		one.Signal()
	}
	return list
}

// Serve gives w the value that it waited for, and all with its login that have waited for it since
// before it was asked for. given says that a release had given w the lock, which it does not need.
// refused is the error for w's client, if w was refused meanwhile.
func (w *Waiter) Serve(value *string, asked time.Time) (given bool, refused error) {
	w.queues.mu.Lock()
	defer w.queues.mu.Unlock()
	given = w.state == granted && !w.Before
	if w.endAgain(served) {
		w.found = value
		w.line.leave(w)
	}
	w.line.answer(w.As, w.Value, value, asked)
	return given, w.rejected
}

// PollBegan notes that w sends a poll, and PollEnded that its queues know how that ended: see
// Outage.
func (w *Wait) PollBegan(now time.Time) {
	w.queues.mu.Lock()
	defer w.queues.mu.Unlock()
	w.pollStarted = now
}

func (w *Wait) PollEnded() {
	w.queues.mu.Lock()
	defer w.queues.mu.Unlock()
	w.pollStarted = time.Time{}
}

// AnswerBy is until when a script that is sent now for w must be answered: a healthy upstream has
// had time to answer. opens says that it goes by a new connection, which takes longer. Without an
// answer it is asked again, by a new connection, and has longer each time, since how far the
// upstream is may not be known yet. But it does not have longer than w lasts.
func (w *Wait) AnswerBy(now time.Time, opens bool) time.Time {
	w.queues.mu.Lock()
	defer w.queues.mu.Unlock()
	way := ownTrips * w.queues.ways.RoundTrip(w.Lead.Key)
	until := now.Add(maxSilence<<min(w.unanswered, 3) + way)
	if opens {
		until = until.Add(maxSilence + way)
	}
	if !w.until.IsZero() && w.until.Before(until) {
		until = later(w.until, now.Add(maxSilence+way))
	}
	w.mayRunUntil = later(w.mayRunUntil, until)
	return until
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Answers reports whether the last poll of w was answered.
func (w *Wait) Answers() bool {
	w.queues.mu.Lock()
	defer w.queues.mu.Unlock()
	return w.unanswered == 0
}

// PollStopped notes that w does not wait for the end of its poll, since it has ended, and returns
// why; nil if it has its locks. The next waiter polls: this one may have found the lock free.
func (w *Wait) PollStopped() error {
	w.queues.mu.Lock()
	defer w.queues.mu.Unlock()
	for _, one := range w.Waiters {
		one.pollNow = true
	}
	if w.ended() {
		return w.rejected
	}
	return cmp.Or[error](w.rejected, failure.ErrGone)
}

// ownTrips is how many round trips a question takes at most, on a connection that is open: to log
// in, to ask, and to ask with the source of the script. To open one takes as many.
const ownTrips = 4
