package lockcmd

import "context"

// offersEnd is what is left to do when offers to waiters have ended.
type offersEnd struct {
	rejected  []*waiter   // must not keep their locks: undo these, then signal them
	undo      []*heldLock // their locks
	abandoned []*heldLock // given, or possibly given, to waiters that have left
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
				ends.rejected, ends.undo = append(ends.rejected, w), append(ends.undo, w.lock(t))
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

// releaseRejected releases what waiters were given and must not keep, and tells them. It waits.
func (l *releases) releaseRejected(on evaluator, ends offersEnd) {
	for i, w := range ends.rejected {
		l.undo(on, ends.undo[i])
		w.signal()
	}
}

// rejectedStep is releaseRejected as steps of s, before its reply.
func (l *releases) rejectedStep(s Session, ends offersEnd, reply Reply) (Reply, *Step) {
	if len(ends.rejected) == 0 {
		return reply, nil
	}
	w := ends.rejected[0]
	step := l.undoStep(s, ends.undo[0], Reply{})
	undone := step.Finish
	step.Finish = func(ctx context.Context, answer Answer, err error) (Reply, *Step) {
		undone(ctx, answer, err)
		w.signal()
		return l.rejectedStep(s, offersEnd{rejected: ends.rejected[1:], undo: ends.undo[1:]}, reply)
	}
	return Reply{}, step
}

// startAbandoned begins to release what was given to waiters that have left.
func (l *releases) startAbandoned(ends offersEnd) {
	for _, lock := range ends.abandoned {
		l.startRelease(lock, func() {})
	}
}
