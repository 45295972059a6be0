package lockcmd

import (
	"runtime"
	"strconv"
	"time"
)

func (l *Locks) runUnlock(s Session, args [][]byte) Reply {
	p, err := parseProof(args[1:], s.Holder().Connection)
	if err != nil {
		return errorReply(err)
	}
	at := lineKey{s.Identity().DB, string(args[0])}
	ls := s.Holder().suspend(at, p)
	released, err := l.release(s, at, s.Identity(), p)
	if !released {
		l.resume(s, at, ls)
	}
	switch {
	case err != nil:
		return errorReply(err)
	case !released:
		return intReply(0)
	}
	s.Holder().taken.remove(at)
	return intReply(1)
}

// release frees a lock and hands it on, in one script: to the first waiter here, or by a reservation to the first waiter of
// another proxy. on and as are who releases.
func (l *Locks) release(on evaluator, at lineKey, as Identity, p proof) (released bool, err error) {
	return l.releaseAs(on, at, as, p, true)
}

// releaseAs does the same, or without handOver leaves the lock free for whoever looks first.
func (l *Locks) releaseAs(on evaluator, at lineKey, as Identity, p proof, handOver bool) (released bool, err error) {
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

	next := request{}
	if w.next != nil {
		next = w.next.request
	}
	where, confirmed := on, l.confirm(on)
	if w.next != nil {
		where = confirmed
	}
	v, err := l.evalFast(where, unlockScript, at.key, l.fastUnlock(p, w), next.owner, p.kind, dash(p.value), l.retention, l.proxy,
		w.kind, milliseconds(next.timeout), l.unit(), dash(next.connection), dash(next.number), dash(next.client),
		flag(next.session), milliseconds(reservation), strconv.Itoa(at.db), l.wakes.tag(at.key),
		l.waitsAs(compete), milliseconds(deafPatience), milliseconds(deafReservation))
	answer, err := ints(unlockScript, 3, v, err)
	if err != nil {
		answer = []int64{0, 0, 0}
	}
	l.observeRelease(on, at, as, p, v, answer, err)

	l.mu.Lock()
	ln := l.lines[at]
	if ln == nil {
		ln = &line{}
	}
	var missing error
	if answer[1] != 0 {
		missing = l.withheld(confirmed)
	}
	taken := false
	if missing != nil {
		taken = ln.deny(w, missing)
	} else {
		taken = ln.answered(w, answer[1])
	}
	orphaned := false
	if err != nil && w.next != nil {
		w.next.unsure, orphaned = true, w.next.state == left
	}
	if answer[0] == 1 && answer[1] == 0 {
		l.foreign.leftFree(at, time.Now())
	}
	switch {
	case answer[0] == 1 && answer[1] == 0 && w.next != nil:
		ln.yielded(reservation)
	case w.kind == "gap":
		ln.yielded(minForeignPoll)
	}
	if err != nil || answer[2] == 1 || w.kind == "none" && !l.foreign.compete(at, time.Now()) { // one who joined since has looked before the lock was free
		ln.lookNow()
	}
	l.mu.Unlock()
	if answer[1] != 0 {
		runtime.Gosched() // the one who was given the lock hears of it before the one who gave it
	}
	switch {
	case missing != nil && !taken:
		l.undo(on, at, w.next.as, w.next.request, answer[1])
		w.next.signal()
	case !taken:
		l.releaseGiven(at, as, w.next.connection, answer[1])
	}
	if orphaned {
		l.releaseRequest(at, w.next.as, w.next.request)
	}
	return answer[0] == 1, err
}

// fastUnlock is UNLOCK's short way, which knows only ms, no takeover guard, a proof of one's own, and waiters that may be named.
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
