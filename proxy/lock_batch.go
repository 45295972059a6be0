package proxy

// Lock commands that stand next to each other in what a client has sent, as those of a program
// whose threads share one connection do. Each needs an answer of the upstream before its own can be
// given, but none needs another's: they are asked together, and cost one round trip instead of one
// each.

import (
	"slices"
	"time"

	"lockproxy/internal/resp"
	"lockproxy/lockcmd"
	"lockproxy/passthrough"
)

// maxLockBatch is how many are asked together.
const maxLockBatch = 64

// lockBatch is lock commands of a session that have begun and not been finished, in order. Only the
// last may not have been asked; then it is finished at once.
type lockBatch []batchedLock

type batchedLock struct {
	lockcmd.Step
	spec   *lockcmd.Spec
	began  time.Time
	answer *passthrough.Answer // nil if it was not asked
	err    error               // why not, if it was to be
}

// concern reports whether one of the commands is about a lock.
func (b lockBatch) concerns(key []byte) bool {
	return slices.ContainsFunc(b, func(one batchedLock) bool { return one.Keys[0] == string(key) })
}

// addLock begins a lock command together with those before it, or with those behind it if it
// concerns a lock that one of them concerns too: these are answered first. It reports false, and
// doesn't begin it, if the command must be run by itself: it is alone, may wait, or the state of
// the connection must be looked at first.
func (s *session) addLock(req resp.Request) bool {
	alone := len(s.locks) == 0 && s.start+len(req.Raw) == s.end
	if alone || len(req.Args) == 0 || s.streaming {
		return false
	}
	cmd := lookup(req.Args[0])
	if cmd.lock == nil || !cmd.lock.AsksOnce(req.Args) || cmd.way != passthrough.Shared || s.drains() {
		return false
	}
	if len(s.locks) == maxLockBatch || s.locks.concerns(req.Args[1]) {
		s.finishLocks()
	}
	if len(s.locks) == 0 {
		s.relayBatch()
		if state, settled := s.pipe.State(); !settled || !state.Plain() || !state.Admitted {
			return false
		}
	}
	s.meter.count(cmd.kind)
	s.start += len(req.Raw)
	if s.startLock(cmd.lock, req.Args); s.locks[len(s.locks)-1].answer == nil {
		s.finishLocks() // there is nothing to wait for, or it takes long, as with --min-replicas
	}
	return true
}

// startLock begins a lock command and asks the upstream, if one request does for that.
func (s *session) startLock(spec *lockcmd.Spec, args [][]byte) {
	s.meter.publish() // it may take long
	state, _ := s.pipe.State()
	s.identity = state.Identity
	one := batchedLock{spec: spec, began: time.Now()}
	one.Step, _ = s.server.locks.Begin(spec, s, args) // it is one that asks once
	if c := one.Call; c != nil && c.Confirm.Min == 0 {
		if one.err = s.connect(passthrough.Shared); one.err == nil {
			one.answer = s.pipe.Do(s.scriptRequest("EVALSHA", c.Script.SHA, c))[0]
		}
	}
	s.locks = append(s.locks, one)
}

// finishLocks gives the client the answers of the lock commands that have begun.
func (s *session) finishLocks() {
	if len(s.locks) == 0 {
		return
	}
	if s.locks[0].answer != nil { // otherwise that the connect has failed is to be remembered
		s.pipe.Flush()
	}
	var text []byte
	for i := range s.locks {
		one := &s.locks[i]
		if one.answer != nil {
			text = s.sendBefore(one.answer, text)
			s.await(one.answer)
		}
		reply := s.finishLock(one)
		s.observeLock(one.spec, one.began)
		state, _ := s.pipe.State()
		text = append(text, encodeReply(one.spec.Name, reply, state.Proto)...)
		if reply.GivesLock() {
			s.holder.MarkSent(reply, s.sentPosition(len(text)))
		}
	}
	clear(s.locks)
	s.locks = s.locks[:0]
	s.guard.Start() // an UNLOCK that failed has left a session lock
	if s.drains() {
		s.setCorked(true) // it may have begun to meanwhile
	}
	s.reply(text)
}

// finishLock finishes a command of the batch that has been awaited, or that could not be asked
// together with others.
func (s *session) finishLock(one *batchedLock) lockcmd.Reply {
	var a lockcmd.Answer
	err := one.err
	switch {
	case one.answer != nil:
		a.Value, err = one.answer.Value()
		if isNoScript(a.Value, err) {
			a.Value, err = s.evalSource(s.askNow, one.Call)
		}
	case err == nil && one.Call != nil:
		a, err = s.Eval(one.Call)
	}
	return one.Finish(s.command(), a, err)
}

// giveBefore gives the client text, and returns what is left of it, if an answer is not there yet:
// a client that has a lock need not wait for another's.
func (s *session) sendBefore(answer *passthrough.Answer, text []byte) (left []byte) {
	select {
	case <-answer.Done:
		return text
	default:
	}
	if len(text) > 0 && s.pipe.Reply(text, passthrough.Now) {
		return nil
	}
	return text
}
