package proxy

// Lock commands that take one script at most and never wait. An event loop runs them up to the
// call of that script and back. Those that stand next to each other in what a client has sent, as
// those of a program whose threads share one connection do, are asked together, and so are those of
// several clients: each needs the answer to its own script, but none needs another's.

import (
	"bytes"
	"errors"
	"slices"
	"time"

	"lockproxy/internal/eventloop"
	"lockproxy/internal/resp"
	"lockproxy/internal/upstream"
	"lockproxy/lockcmd"
	"lockproxy/passthrough"
)

// maxLockBatch is how many are asked together.
const maxLockBatch = 64

// lockBatch is the lock commands of a session that have begun and not been finished, in order. Each
// has asked the upstream, except perhaps the last, which is finished at once then.
type lockBatch []batchedLock

type batchedLock struct {
	lockcmd.Step
	spec   *lockcmd.Spec
	began  time.Time
	answer *passthrough.Answer // nil if it was not asked
	err    error               // why not, if it was to be
}

// asked reports whether each of the commands has been asked.
func (b lockBatch) asked() bool { return len(b) == 0 || b[len(b)-1].answer != nil }

// answered reports whether each of the commands has an answer with which it can be finished at
// once.
func (b lockBatch) answered() bool {
	for i := range b {
		if b[i].answer == nil || !b[i].answer.Good() {
			return false
		}
	}
	return true
}

// concerns reports whether one of the commands is about a lock.
func (b lockBatch) concerns(key []byte) bool {
	return slices.ContainsFunc(b, func(one batchedLock) bool {
		return one.Call != nil && one.Keys[0] == string(key)
	})
}

// startLock begins a lock command and asks the upstream, if one request does for that; in an event
// loop only if it need not wait for that. it is nil outside one.
func (l *locker) startLock(spec *lockcmd.Spec, args [][]byte, it *eventloop.Iteration) {
	l.client.publish() // it can take long
	state, _ := l.pipe.State()
	l.identity = state.Identity
	one := batchedLock{spec: spec, began: time.Now()}
	one.Step, _ = l.server.locks.Begin(spec, &l.lockSession, args) // it is one that asks once
	if c := one.Call; c != nil && !c.Confirm.Needed() {
		ask := &passthrough.Call{
			SHA: c.Script.SHA, Name: c.Script.Name, Keys: c.Keys[:], Args: c.Args[:]}
		if it != nil {
			l.missing.Add(1)
			if one.answer = l.pipe.TryAsk(ask, l.waiter, it); one.answer == nil {
				l.missing.Add(-1)
			}
		} else if one.err = l.route(passthrough.Shared); one.err == nil {
			one.answer = l.pipe.Ask(ask)
		}
	}
	l.begun = append(l.begun, one)
	if it == nil && one.answer == nil {
		l.finishLocks() // there is nothing to wait for, or it takes long, as with --min-replicas
	}
}

// finishLocks gives the client the answers of the lock commands that have begun.
func (l *locker) finishLocks() {
	if len(l.begun) == 0 {
		return
	}
	if l.begun[0].answer != nil { // otherwise a failed route is to be remembered
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
		switch {
		case err != nil:
		case isNoScript(a.Value, err):
			a.Value, err = l.evalSource(l.askNow, one.Call)
		case leftOut(a.Value), one.answer.Refused() && bytes.HasPrefix(a.Text, []byte("NOPERM")):
			a.Value, err = l.evaluate(l.askNow, one.Call) // it has not run
		case one.answer.Refused() && bytes.HasPrefix(a.Text, []byte("ERR")):
			// The batch was ended half way.
			err = &upstream.Error{Addr: l.server.cfg.Upstream.Addr, Sent: true,
				Err: errors.New(string(a.Text))}
		}
	case err == nil && one.Call != nil:
		a, err = l.Eval(one.Call)
	}
	return one.Finish(l.command(), a, err)
}

// leftOut reports whether a script was not run because others of its batch took too long.
func leftOut(v resp.Value) bool { return v.Type == '+' && string(v.Text) == "LATER" }

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
