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

// release frees a lock and hands it on, in one script: to the first waiter here, or by a
// reservation to the first waiter of another proxy. on and as are who releases.
func (l *Locks) release(on evaluator, id LockID, as Identity, p proof, handsOver bool) (released bool, err error) {
	r := l.beginRelease(on, id, as, p, handsOver)
	answer, err := on.Eval(&r.Call)
	return l.finishRelease(r, answer, err)
}

// beginRelease offers the lock to a waiter and makes the call. finishRelease must follow.
func (l *Locks) beginRelease(on evaluator, id LockID, as Identity, p proof, handsOver bool) *unlockRun {
	l.mu.Lock()
	offer := handOver{kind: "none"}
	compete := l.foreign.compete(id, time.Now())
	switch q := l.queues[id]; {
	case q == nil:
	case handsOver && l.holdOff.remaining() == 0:
		offer = q.offer(as, compete, time.Now())
	default:
		offer.kind = "gap"
	}
	l.mu.Unlock()

	r := &unlockRun{on: on, id: id, as: as, proof: p, handOver: offer}
	next := lockRequest{}
	if offer.next != nil {
		next = offer.next.lockRequest
	}
	r.Call = l.call(unlockScript, id.Key, l.fastUnlock(p, offer), next.owner, p.kind, orDash(p.value), l.retention, l.proxy,
		offer.kind, milliseconds(next.timeout), l.unit(), orDash(next.connection), orDash(next.number), orDash(next.client),
		flag(next.session), milliseconds(reservation), strconv.Itoa(id.DB), l.notifications.slotTag(id.Key),
		l.waitsAs(compete), milliseconds(pollPatience), milliseconds(pollReservation))
	if offer.next != nil {
		r.Confirm = l.cfg.replicas()
	}
	return r
}

// finishRelease tells the waiter that was offered the lock how that ended.
func (l *Locks) finishRelease(r *unlockRun, a Answer, err error) (released bool, failed error) {
	answer, err := r.ints(3, a, err)
	if err != nil {
		answer = []int64{0, 0, 0}
	}
	l.observeRelease(r.on, r.id, r.as, r.proof, a.Value, answer, err)
	released, token := answer[0] == 1, answer[1]
	var missing error
	if token != 0 {
		missing = l.notConfirmed(&a, r.Confirm)
	}
	taken, orphaned := l.endHandOver(r, answer, missing, err)
	if token != 0 {
		runtime.Gosched() // the one who was given the lock hears of it before the one who gave it
	}
	next := r.handOver.next
	switch {
	case missing != nil && !taken:
		l.undo(r.on, next.lock(token))
		next.signal()
	case !taken:
		l.releaseAbandoned(next.lock(token))
	}
	if orphaned {
		l.releaseAbandoned(next.lock(0))
	}
	return released, err
}

// endHandOver ends the offer of a release that has been answered, or has failed with err. missing is
// why the lock must not be given to the waiter that has it now. taken is false if that waiter
// doesn't keep it; orphaned says that one who has left may have been given it.
func (l *Locks) endHandOver(r *unlockRun, answer []int64, missing, err error) (taken, orphaned bool) {
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
		offer.next.unknownOutcome, orphaned = true, offer.next.state == left
	}
	free := released && token == 0
	if free {
		l.foreign.leftFree(r.id, time.Now())
	}
	switch {
	case free && offer.next != nil:
		q.yield(reservation)
	case offer.kind == "gap":
		q.yield(minForeignPoll)
	}
	// One that has joined since has polled before the lock was free.
	joined := offer.kind == "none" && !l.foreign.compete(r.id, time.Now())
	if err != nil || answer[2] == 1 || joined {
		q.pollNow()
	}
	return taken, orphaned
}

// fastUnlock is UNLOCK's short way, which knows only ms, no takeover guard, a proof of one's own,
// and waiters that may be named.
func (l *Locks) fastUnlock(p proof, offer handOver) fastArgs {
	if l.cfg.Seconds || l.cfg.TakeoverGuard > 0 || p.kind != "token" && p.kind != "connection" {
		return noFastPath
	}
	fast := fastArgs{l.retention, p.value, offer.kind}
	switch offer.kind {
	case "none":
	case "next", "fair":
		r := offer.next.lockRequest
		fast[2] = milliseconds(r.timeout) + " " + milliseconds(r.timeout+l.cfg.FenceRetention) + " " + r.holderFields()
	default:
		return noFastPath
	}
	return fast
}

// orDash stands for what an unnamed waiter doesn't have.
func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// undo takes back a lock whose client is not told of it, and leaves it free: a waiter would fare no
// better with it.
func (l *Locks) undo(on evaluator, lock *heldLock) {
	if _, err := l.release(on, lock.id(), lock.as, lock.releaseProof(), false); err != nil {
		l.releaseAbandoned(lock)
	}
}
