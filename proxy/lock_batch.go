package proxy

// Lock commands that stand next to each other in what a client has sent, as those of a program
// whose threads share one connection do. Each needs an answer of the upstream before its own can be
// given, but none needs another's: they are asked together, and cost one round trip instead of one
// each.

import (
	"slices"
	"time"

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

// concerns reports whether one of the commands is about a lock.
func (b lockBatch) concerns(key []byte) bool {
	return slices.ContainsFunc(b, func(one batchedLock) bool { return one.Keys[0] == string(key) })
}

// startLock begins a lock command and asks the upstream, if one request does for that.
func (l *locker) startLock(spec *lockcmd.Spec, args [][]byte) {
	l.client.publish() // it may take long
	state, _ := l.pipe.State()
	l.identity = state.Identity
	one := batchedLock{spec: spec, began: time.Now()}
	one.Step, _ = l.server.locks.Begin(spec, &l.lockSession, args) // it is one that asks once
	if c := one.Call; c != nil && c.Confirm.Min == 0 {
		if one.err = l.connect(passthrough.Shared); one.err == nil {
			one.answer = l.pipe.Do(l.scriptRequest("EVALSHA", c.Script.SHA, c))[0]
		}
	}
	l.begun = append(l.begun, one)
	if one.answer == nil {
		l.finishLocks() // there is nothing to wait for, or it takes long, as with --min-replicas
	}
}

// finishLocks gives the client the answers of the lock commands that have begun.
func (l *locker) finishLocks() {
	if len(l.begun) == 0 {
		return
	}
	if l.begun[0].answer != nil { // otherwise a failed connect is to be remembered
		l.pipe.Flush()
	}
	var text []byte
	for i := range l.begun {
		one := &l.begun[i]
		if one.answer != nil {
			text = l.sendBefore(one.answer, text)
			l.await(one.answer)
		}
		reply := l.finishLock(one)
		l.observeLock(one.spec, one.began)
		state, _ := l.pipe.State()
		text = append(text, encodeReply(one.spec.Name, reply, state.Proto)...)
		if reply.GivesLock() {
			l.client.holder.MarkSent(reply, l.sentPosition(len(text)))
		}
	}
	clear(l.begun)
	l.begun = l.begun[:0]
	l.client.guard.Start() // an UNLOCK that failed has left a session lock
	if l.client.drains() {
		l.client.setCorked(true) // the server may have begun to shut down meanwhile
	}
	l.reply(text)
}

// finishLock finishes a command of the batch that has been awaited, or that could not be asked
// together with others.
func (l *locker) finishLock(one *batchedLock) lockcmd.Reply {
	var a lockcmd.Answer
	err := one.err
	switch {
	case one.answer != nil:
		a.Value, err = one.answer.Value()
		if isNoScript(a.Value, err) {
			a.Value, err = l.evalSource(l.askNow, one.Call)
		}
	case err == nil && one.Call != nil:
		a, err = l.Eval(one.Call)
	}
	return one.Finish(l.command(), a, err)
}

// sendBefore gives the client text if an answer is not there yet, and returns what is left of it: a
// client that has a lock must not wait for another's.
func (l *locker) sendBefore(answer *passthrough.Answer, text []byte) (left []byte) {
	select {
	case <-answer.Done:
		return text
	default:
	}
	if len(text) > 0 && l.pipe.Reply(text, passthrough.Now) {
		return nil
	}
	return text
}
