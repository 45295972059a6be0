package lockcmd

import (
	"context"
	"sync/atomic"
	"time"

	"lockproxy/internal/names"
	"lockproxy/lockcmd/background"
	"lockproxy/lockcmd/failure"
	"lockproxy/lockcmd/held"
	"lockproxy/lockcmd/queue"
	"lockproxy/lockcmd/script"
)

// releases frees locks, on request and when they are abandoned, and hands them over to waiters.
type releases struct {
	*common
	queues   *queue.Queues
	seen     *observed
	sessions *held.Sessions

	unreleased atomic.Int64 // abandoned locks that could not be released yet
	told       atomic.Bool  // the log says that there are some
}

// releaseStep releases a lock, and then what waiters must not keep of it.
func (l *releases) releaseStep(r *unlockCall, ended func(released bool, err error) Reply) *Step {
	return &Step{Asks: Script{&r.Call}, Finish: func(
		answer script.Answer, err error,
	) (Reply, *Step) {
		released, ends, err := l.finishRelease(r, answer, err)
		return l.undoAll(r.by, rejectedLocks(ends.Rejected), always(ended(released, err)))
	}}
}

// release frees a lock for an identity, as releaseStep. If handsOver, it offers the lock to the
// first waiter, here or at another proxy. Otherwise the first to poll takes it.
func (l *releases) release(
	on *background.OnClient, id names.Lock, as names.Identity, p script.Proof, handsOver bool,
) (released bool, err error) {
	r := l.beginRelease(nil, id, as, p, handsOver)
	step := l.releaseStep(r, func(done bool, failed error) Reply {
		released, err = done, failed
		return Reply{}
	})
	for step != nil { // it asks for scripts alone
		answer, failed := on.Eval(step.Call())
		_, step = step.Finish(answer, failed)
	}
	return released, err
}

// beginRelease offers the lock to a waiter and makes the call. by is whose command it is, nil for
// the proxy's own. finishRelease must follow.
func (l *releases) beginRelease(
	by *held.Holder, id names.Lock, as names.Identity, p script.Proof, handsOver bool,
) *unlockCall {
	offer := l.queues.Of(id).Offer(as, handsOver && l.heldOff() == 0, time.Now())
	r := &unlockCall{by: by, id: id, as: as, proof: p, handOver: offer}
	has := "-"
	if by != nil && p.Kind == "connection" {
		has = by.SharedToken(id)
	}
	r.Call = l.Scripts.Unlock(l.releaseOf(id, p, has, offer))
	return r
}

// releaseOf is what a script is told of an offer.
func (l *releases) releaseOf(
	id names.Lock, p script.Proof, has string, offer queue.HandOver,
) script.Release {
	return script.Release{
		Id: id, Proof: p, Has: has, How: l.queues.WaitsAs(id.Key, offer.Compete, false),
		Wanted: offer.Kind, Waiters: offersOf(offer.Named, offer.Behind),
	}
}

// finishRelease ends the offer, and returns whether the lock was released, and what waiters must
// not keep.
func (l *releases) finishRelease(
	r *unlockCall, a script.Answer, err error,
) (done bool, ends queue.Ends, failed error) {
	answer, ends, err := l.endOffer(r.handOver, &r.Call, a, err, func(answer []int64, err error) {
		l.observeRelease(r, a, answer, err)
	})
	return answer[0] != 0, ends, err
}

// observeRelease notes what a release has ended.
func (l *releases) observeRelease(r *unlockCall, a script.Answer, answer []int64, err error) {
	if len(answer) > 3 {
		r.token = answer[3]
	}
	if ended, others := l.seen.observeRelease(r, a.Value, answer, err); ended != nil {
		l.sessions.Released(ended, lossByRelease(r))
		for _, lock := range others {
			l.sessions.Released(lock, lossByRelease(r))
		}
	}
	if r.proof.Kind == "force" && answer[0] != 0 {
		// The registry can have a session's lock as the only holder's, which is shared since.
		l.sessions.VerifySessions(r.id.DB, []string{r.id.Key}, lossByRelease(r))
	}
}

// endOffer ends the offer of a script that answers as unlock.lua. It calls ended before waiters are
// told, and returns the script's answer, and what waiters must not keep.
func (l *releases) endOffer(
	offer queue.HandOver, c *script.Call, a script.Answer, err error,
	ended func(answer []int64, err error),
) (answer []int64, ends queue.Ends, failed error) {
	answer, err = c.Ints(3, a, err)
	if err != nil {
		answer = []int64{0, 0, 0}
	}
	ended(answer, err)
	var missing error
	if answer[1] != 0 {
		missing = l.notConfirmed(&a, c.Confirm)
	}
	unknown := err
	if failure.NeverSent(err) {
		unknown = nil
	}
	ends = offer.End(queue.Released{
		Done: answer[0] == 1, Token: answer[1], Given: givenTo(answer), Polls: answer[2] == 1,
		Failed: err != nil, Unknown: unknown, Missing: missing,
	}, time.Now())
	l.startAbandoned(ends)
	return answer, ends, err
}

// unlistPause is how long a proxy stays listed after its last waiter has left. A client that asks
// again at once needs no script then.
const unlistPause = 10 * time.Millisecond

// waitsNoMore tells other proxies that no client waits here for a lock any more, unless one does
// again. At once it releases a lock that may be reserved for this proxy. If that fails, the
// reservation ends by itself, and others wait for this proxy a second longer.
func (l *releases) waitsNoMore(as names.Identity, id names.Lock, reserved bool) {
	pause := unlistPause
	if reserved {
		pause = 0
	}
	l.Timers.After(pause, func(ctx context.Context) {
		if !reserved && l.queues.Of(id).HasWaiters() {
			return
		}
		on := l.Clients.On(ctx, as, id.Key, time.Now().Add(l.Clients.Patience()))
		l.release(on, id, as, script.Proof{Kind: "reserved", Value: l.Scripts.Proxy}, true)
	})
}
