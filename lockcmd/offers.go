package lockcmd

import (
	"lockproxy/lockcmd/background"
	"lockproxy/lockcmd/chain"
	"lockproxy/lockcmd/held"
	"lockproxy/lockcmd/script"
)

// offersEnd is what is left to do when offers to waiters have ended.
type offersEnd struct {
	rejected  []rejectedLock
	abandoned []*held.Lock // given, or possibly given, to waiters that have left
}

// rejectedLock is a lock that its client must not get, and that is to be released.
type rejectedLock struct {
	*held.Lock
	waiter *waiter // to signal then; nil if none waits for that
}

// endOffers ends one script's offers to waiters. It has given the lock to the first ones, as many
// as given, with tokens from token on. missing is why they must not keep it; err is why the outcome
// is unknown.
func (q *waitQueue) endOffers(
	named []*waiter, token int64, given int, missing, err error,
) (ends offersEnd) {
	for i, w := range named {
		t := int64(0)
		if i < given {
			t = token + int64(i)
		}
		switch {
		case t != 0 && missing != nil:
			if !w.reject(missing) {
				ends.rejected = append(ends.rejected, rejectedLock{w.lock(t), w})
			}
		case !q.endOffer(w, t):
			ends.abandoned = append(ends.abandoned, w.lock(t))
		}
		if err != nil {
			w.unknownOutcome = true
			if w.state == left {
				ends.abandoned = append(ends.abandoned, w.lock(0))
			}
		}
	}
	return ends
}

// undoAll releases locks one after the other, and offers them to no waiter. Then the command of the
// connection by (nil for none) has its reply: until its client hears of it, the locks are free
// again.
func (l *releases) undoAll(by *held.Holder, list []rejectedLock, reply Reply) (Reply, *Step) {
	if len(list) == 0 {
		return reply, nil
	}
	lock := list[0]
	r := l.beginRelease(by, lock.ID(), lock.As, lock.ReleaseProof(), false)
	return Reply{}, &Step{Call: &r.Call, Finish: func(answer script.Answer, err error) (Reply, *Step) {
		if _, _, err := l.finishRelease(r, answer, err); err != nil { // it names no waiter
			l.startRelease(lock.Lock, func() {})
		}
		if lock.waiter != nil {
			lock.waiter.signal()
		}
		return l.undoAll(by, list[1:], reply)
	}}
}

// undo is undoAll for a lock that a waiter must not get.
func (l *releases) undo(on background.Evaluator, by *held.Holder, lock *held.Lock) {
	reply, next := l.undoAll(by, []rejectedLock{{Lock: lock}}, Reply{})
	chain.Drive(on, reply, next)
}

// startAbandoned begins to release what was given to waiters that have left.
func (l *releases) startAbandoned(ends offersEnd) {
	for _, lock := range ends.abandoned {
		l.startRelease(lock, func() {})
	}
}
