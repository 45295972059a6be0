package lockcmd

import (
	"context"
	"runtime"
	"strconv"
	"time"
)

func (l *Locks) beginUnlock(s Session, args [][]byte) (step Step, ok bool) {
	p, err := parseProof(args[1:], s.Holder().Connection)
	if err != nil {
		return answered(errorReply(err)), true
	}
	id := LockID{s.Identity().DB, string(args[0])}
	s.Holder().suspend(id, p)
	r := l.beginRelease(s, id, s.Identity(), p, true)
	return Step{&r.Call, func(_ context.Context, answer Answer, err error) Reply {
		released, err := l.finishRelease(r, answer, err)
		l.unlocked(s.Holder(), r.id, released)
		switch {
		case err != nil:
			return errorReply(err)
		case !released:
			return intReply(0)
		}
		return intReply(1)
	}}, true
}

// unlockRun is a run of unlock.lua.
type unlockRun struct {
	Call
	on       evaluator // where it runs
	id       LockID
	as       Identity
	proof    proof
	handOver handOver
}

// release frees a lock for identity as, on on. If handsOver it offers the lock to the first waiter,
// here or of another proxy, otherwise the first to poll takes it.
func (l *Locks) release(
	on evaluator, id LockID, as Identity, p proof, handsOver bool,
) (released bool, err error) {
	r := l.beginRelease(on, id, as, p, handsOver)
	answer, err := on.Eval(&r.Call)
	return l.finishRelease(r, answer, err)
}

// beginRelease offers the lock to a waiter and makes the call. finishRelease must follow.
func (l *Locks) beginRelease(
	on evaluator, id LockID, as Identity, p proof, handsOver bool,
) *unlockRun {
	l.mu.Lock()
	offer := handOver{kind: "none"}
	compete := l.foreign.compete(id, time.Now())
	switch q := l.queues[id]; {
	case q == nil:
	case handsOver && l.holdOff.remaining() == 0:
		offer = q.offer(as, compete && !l.foreign.makeUp(id), time.Now())
	default:
		offer.kind = "gap"
	}
	if offer.kind == "free" {
		l.foreign.leftFree(id, time.Now()) // before anybody is told that the key has changed
	}
	l.mu.Unlock()

	r := &unlockRun{on: on, id: id, as: as, proof: p, handOver: offer}
	next := lockRequest{}
	if offer.next != nil {
		next = offer.next.lockRequest
	}
	r.Call = l.call(unlockScript, id.Key, l.fastUnlock(p, offer), next.owner,
		p.kind, orDash(p.value), l.retention, l.proxy,
		offer.kind, milliseconds(next.timeout), l.unit(),
		orDash(next.connection), orDash(next.number), orDash(next.client), flag(next.session),
		milliseconds(reservation), strconv.Itoa(id.DB), l.notifications.slotTag(id.Key),
		l.waitsAs(compete), milliseconds(pollPatience), milliseconds(pollReservation))
	if offer.next != nil {
		r.Confirm = l.cfg.replicas()
	}
	return r
}

// finishRelease ends the offer, and returns whether the lock was released.
func (l *Locks) finishRelease(r *unlockRun, a Answer, err error) (released bool, failed error) {
	answer, err := r.ints(3, a, err)
	if err != nil {
		answer = []int64{0, 0, 0}
	}
	l.observeRelease(r, a.Value, answer, err)
	released, token := answer[0] == 1, answer[1]
	var missing error
	if token != 0 {
		missing = l.notConfirmed(&a, r.Confirm)
	}
	taken, abandoned := l.endHandOver(r, answer, missing, err)
	if token != 0 {
		runtime.Gosched() // the new holder is answered before the old one
	}
	next := r.handOver.next
	switch {
	case missing != nil && !taken:
		l.undo(r.on, next.lock(token))
		next.signal()
	case !taken:
		l.releaseAbandoned(next.lock(token))
	}
	if abandoned {
		l.releaseAbandoned(next.lock(0))
	}
	return released, err
}

// endHandOver ends the offer of a release that has been answered, or has failed with err. missing
// is why the waiter must not keep the lock that it was given. taken is false if it does not keep
// it. abandoned says that a waiter that has left may have been given the lock.
func (l *Locks) endHandOver(
	r *unlockRun, answer []int64, missing, err error,
) (taken, abandoned bool) {
	offer, released, token := r.handOver, answer[0] == 1, answer[1]
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.queues[r.id]
	if q == nil {
		q = &waitQueue{}
	}
	if missing != nil {
		taken = q.reject(offer, missing)
	} else {
		taken = q.endHandOver(offer, token)
	}
	if err != nil && offer.next != nil {
		offer.next.unknownOutcome, abandoned = true, offer.next.state == left
	}
	free := released && token == 0
	if free {
		l.wakeDelayedLocked(r.id)
		l.foreign.leftFree(r.id, time.Now())
	}
	switch {
	case free && offer.next != nil:
		q.yield(reservation)
	case offer.kind == "gap", offer.kind == "free":
		q.yield(minForeignPoll)
	}
	// A waiter that has joined since has polled before the lock was free.
	joined := offer.kind == "none" && !l.foreign.compete(r.id, time.Now())
	if err != nil || answer[2] == 1 || joined {
		q.pollNow()
	}
	return taken, abandoned
}

// fastUnlock is UNLOCK's fast path, which knows only ms, no takeover guard, a holder's proof, and
// no waiters that the caller may not name.
func (l *Locks) fastUnlock(p proof, offer handOver) fastArgs {
	if l.cfg.Seconds || l.cfg.TakeoverGuard > 0 || p.kind != "token" && p.kind != "connection" {
		return noFastPath
	}
	fast := fastArgs{l.retention, p.value, offer.kind}
	switch offer.kind {
	case "none":
	case "next", "fair":
		r := offer.next.lockRequest
		lives := r.timeout + l.cfg.FenceRetention
		proxy := l.proxy
		if offer.kind == "fair" {
			proxy = "-"
		}
		fast[2] = proxy + " " + milliseconds(r.timeout) + " " + milliseconds(lives) + " " +
			r.holderFields()
	default:
		return noFastPath
	}
	return fast
}

// orDash is s, or a dash for an empty argument.
func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// undo releases a lock that its client must not get, and offers it to nobody.
func (l *Locks) undo(on evaluator, lock *heldLock) {
	if _, err := l.release(on, lock.id(), lock.as, lock.releaseProof(), false); err != nil {
		l.releaseAbandoned(lock)
	}
}
