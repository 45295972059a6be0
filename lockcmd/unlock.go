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
	at := lineKey{s.Identity().DB, string(args[0])}
	s.Holder().suspend(at, p)
	r := l.beginRelease(s, at, s.Identity(), p, true)
	return Step{&r.Call, func(_ context.Context, answer Answer, err error) Reply {
		released, err := l.finishRelease(r, answer, err)
		l.unlocked(s.Holder(), r.at, released)
		switch {
		case err != nil:
			return errorReply(err)
		case !released:
			return intReply(0)
		}
		return intReply(1)
	}}, true
}

// releasing is a run of unlock.lua.
type releasing struct {
	Call
	on    evaluator // where it runs
	at    lineKey
	as    Identity
	proof proof
	wish  wish
}

// release frees a lock and hands it on, in one script: to the first waiter here, or by a
// reservation to the first waiter of another proxy. on and as are who releases.
func (l *Locks) release(on evaluator, at lineKey, as Identity, p proof) (released bool, err error) {
	return l.releaseAs(on, at, as, p, true)
}

// releaseAs does the same, or without handOver leaves the lock free for the one that polls first.
func (l *Locks) releaseAs(on evaluator, at lineKey, as Identity, p proof, handOver bool) (released bool, err error) {
	r := l.beginRelease(on, at, as, p, handOver)
	answer, err := on.Eval(&r.Call)
	return l.finishRelease(r, answer, err)
}

// beginRelease offers the lock to a waiter and makes the call. finishRelease must follow.
func (l *Locks) beginRelease(on evaluator, at lineKey, as Identity, p proof, handOver bool) *releasing {
	l.mu.Lock()
	w := wish{kind: "none"}
	compete := l.foreign.compete(at, time.Now())
	switch ln := l.lines[at]; {
	case ln == nil:
	case handOver && l.holdOff.remaining() == 0:
		w = ln.offer(as, compete, time.Now())
	default:
		w.kind = "gap"
	}
	l.mu.Unlock()

	r := &releasing{on: on, at: at, as: as, proof: p, wish: w}
	next := request{}
	if w.next != nil {
		next = w.next.request
	}
	r.Call = l.call(unlockScript, at.key, l.fastUnlock(p, w), next.owner, p.kind, dash(p.value), l.retention, l.proxy,
		w.kind, milliseconds(next.timeout), l.unit(), dash(next.connection), dash(next.number), dash(next.client),
		flag(next.session), milliseconds(reservation), strconv.Itoa(at.db), l.wakes.tag(at.key),
		l.waitsAs(compete), milliseconds(deafPatience), milliseconds(deafReservation))
	if w.next != nil {
		r.Confirm = l.cfg.replicas()
	}
	return r
}

// finishRelease tells the waiter that was offered the lock how that ended.
func (l *Locks) finishRelease(r *releasing, a Answer, err error) (released bool, failed error) {
	answer, err := r.ints(3, a, err)
	if err != nil {
		answer = []int64{0, 0, 0}
	}
	l.observeRelease(r.on, r.at, r.as, r.proof, a.Value, answer, err)
	released, token := answer[0] == 1, answer[1]
	var missing error
	if token != 0 {
		missing = l.withheld(&a, r.Confirm)
	}
	taken, orphaned := l.handedOn(r, answer, missing, err)
	if token != 0 {
		runtime.Gosched() // the one who was given the lock hears of it before the one who gave it
	}
	next := r.wish.next
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

// handedOn ends the offer of a release that has been answered, or has failed with err. missing is
// why the lock must not be given to the waiter that has it now. taken is false if that waiter
// doesn't keep it; orphaned says that one who has left may have been given it.
func (l *Locks) handedOn(r *releasing, answer []int64, missing, err error) (taken, orphaned bool) {
	w, released, token := r.wish, answer[0] == 1, answer[1]
	l.mu.Lock()
	defer l.mu.Unlock()
	ln := l.lines[r.at]
	if ln == nil {
		ln = &line{}
	}
	if missing != nil {
		taken = ln.deny(w, missing)
	} else {
		taken = ln.answered(w, token)
	}
	if err != nil && w.next != nil {
		w.next.unsure, orphaned = true, w.next.state == left
	}
	free := released && token == 0
	if free {
		l.foreign.leftFree(r.at, time.Now())
	}
	switch {
	case free && w.next != nil:
		ln.yielded(reservation)
	case w.kind == "gap":
		ln.yielded(minForeignPoll)
	}
	// One that has joined since has polled before the lock was free.
	joined := w.kind == "none" && !l.foreign.compete(r.at, time.Now())
	if err != nil || answer[2] == 1 || joined {
		ln.pollNow()
	}
	return taken, orphaned
}

// fastUnlock is UNLOCK's short way, which knows only ms, no takeover guard, a proof of one's own,
// and waiters that may be named.
func (l *Locks) fastUnlock(p proof, w wish) shortWay {
	if l.cfg.Seconds || l.cfg.TakeoverGuard > 0 || p.kind != "token" && p.kind != "connection" {
		return longWay
	}
	fast := shortWay{l.retention, p.value, w.kind}
	switch w.kind {
	case "none":
	case "next", "turn":
		r := w.next.request
		fast[2] = milliseconds(r.timeout) + " " + milliseconds(r.timeout+l.cfg.FenceRetention) + " " + r.companion()
	default:
		return longWay
	}
	return fast
}

// dash stands for what an unnamed waiter doesn't have.
func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
