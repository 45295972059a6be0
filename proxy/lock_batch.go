package proxy

// Lock commands that take one script at most and never wait. An event loop runs them up to the
// call of that script, and from its answer on. Consecutive ones of a client are asked together: its
// threads may share the connection. So are those of several clients. Each needs the answer to its
// own script, but none needs another's.

import (
	"bytes"
	"errors"
	"slices"
	"strings"
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
// has asked the upstream, except perhaps the last, which is finished at once then, or the first, if
// its next step could not be asked in the loop.
type lockBatch []batchedLock

type batchedLock struct {
	lockcmd.Step
	spec   *lockcmd.Spec
	began  time.Time
	answer *passthrough.Answer // nil if it was not asked
	err    error               // why not, if it was to be
}

// request is what asks the upstream.
func (one *batchedLock) request() *passthrough.Call {
	c := one.Call
	return &passthrough.Call{SHA: c.Script.SHA, Name: c.Script.Name, Keys: c.Keys[:],
		Args: c.Args[:]}
}

// asked reports whether each of the commands has been asked.
func (b lockBatch) asked() bool {
	return len(b) == 0 || b[0].answer != nil && b[len(b)-1].answer != nil
}

// answered is how many of the first commands have been answered. ok is false if the next one, or
// one of these, takes more than its answer.
func (b lockBatch) answered() (n int, ok bool) {
	for ; n < len(b); n++ {
		a := b[n].answer
		if a == nil {
			return n, false
		}
		if !a.Arrived() {
			break
		}
		if !a.Good() {
			return n, false
		}
	}
	return n, true
}

// concerns reports whether one of the commands is about a lock.
func (b lockBatch) concerns(key []byte) bool {
	return slices.ContainsFunc(b, func(one batchedLock) bool {
		return one.Call != nil && one.Keys[0] == string(key)
	})
}

// lockReplies are the replies to lock commands that the client gets next.
type lockReplies struct {
	text  []byte
	given []givenLock
}

// givenLock is a reply that gives a lock, and where in the text it ends.
type givenLock struct {
	reply lockcmd.Reply
	end   int
}

func (r *lockReplies) add(reply lockcmd.Reply, text []byte) {
	r.text = append(r.text, text...)
	if reply.GivesLock() {
		r.given = append(r.given, givenLock{reply, len(r.text)})
	}
}

// startLock begins a lock command, and asks the upstream if one request is enough. In an event
// loop, where it is not nil, it asks only if it need not wait for that.
func (l *locker) startLock(spec *lockcmd.Spec, args [][]byte, it *eventloop.Iteration) {
	l.client.publish() // it can take long
	state, _ := l.pipe.State()
	l.actAs(state)
	one := batchedLock{spec: spec, began: time.Now()}
	one.Step, _ = l.server.locks.Begin(spec, &l.lockSession, args) // it is one that asks once
	l.askStep(&one, it)
	l.begun = append(l.begun, one)
	if it == nil && one.answer == nil {
		l.finishLocks() // there is nothing to wait for, or it takes long, as with --min-replicas
	}
}

// askStep asks the upstream for a step, if one request is enough: in an event loop, where it is not
// nil, only if it need not wait for that.
func (l *locker) askStep(one *batchedLock, it *eventloop.Iteration) {
	one.answer, one.err = nil, nil
	if one.Call == nil || one.Call.Confirm.Needed() {
		return
	}
	if it != nil {
		one.answer = l.pipe.TryAsk(one.request(), l.waiter, it)
	} else if one.err = l.route(passthrough.Shared); one.err == nil {
		one.answer = l.pipe.Ask(one.request())
	}
}

// finishLocks waits for the lock commands that have begun, and gives the client their answers.
func (l *locker) finishLocks() {
	if len(l.begun) == 0 {
		return
	}
	l.pipe.AwaitRoom()
	if l.begun[0].answer != nil { // otherwise a failed route must be remembered
		l.pipe.Flush()
	}
	l.finishFirst(len(l.begun), nil)
}

// finishFirst finishes the first n of the lock commands that have begun, and gives the client their
// answers. In an event loop, where it is not nil, the first of them that takes another step is asked
// for that, and finished with its answer.
func (l *locker) finishFirst(n int, it *eventloop.Iteration) {
	done := 0
	for ; done < n; done++ {
		one := &l.begun[done]
		if one.answer != nil {
			l.awaitAnswer(one)
			if l.notRun(one.answer) {
				end := l.askAgain(l.begun[done:n])
				l.awaitAnswer(one)
				end()
			}
		}
		reply, next := l.finishLock(one)
		if next != nil && it != nil {
			one.Step = *next
			l.askStep(one, it)
			break
		}
		for ; next != nil; reply, next = l.finishLock(one) {
			one.Step, one.answer = *next, nil
		}
		l.observeLock(one.spec, one.began)
		state, _ := l.pipe.State()
		l.done.add(reply, encodeReply(one.spec.Name, reply, state.Proto))
	}
	l.begun = slices.Delete(l.begun, 0, done)
	l.client.guard.Start()    // an UNLOCK that failed has left a session lock
	l.client.corkIfDraining() // the server may have begun to shut down meanwhile
	l.sendDone()
}

// awaitAnswer waits for the answer to a command that was asked. A client that has a lock must not
// wait for another's: it is given what is done.
func (l *locker) awaitAnswer(one *batchedLock) {
	if !one.answer.Arrived() {
		l.sendDone()
	}
	l.await(one.answer)
}

// sendDone gives the client the answers of the lock commands that have been finished. If the client
// has only a part of a push, and more commands are to finish, they go with the next answer.
func (l *locker) sendDone() {
	if len(l.done.text) == 0 {
		return
	}
	var sent lockcmd.Sent
	if len(l.done.given) > 0 {
		sent = l.sentPosition(0)
	}
	if len(l.begun) == 0 {
		l.reply(l.done.text)
	} else if !l.pipe.Reply(l.done.text, passthrough.Now) {
		return
	}
	for _, g := range l.done.given {
		at := sent
		at.End += uint64(g.end)
		l.client.holder.MarkSent(g.reply, at)
	}
	clear(l.done.given)
	l.done.given = l.done.given[:0]
	l.done.text = nil
}

// finishLock finishes a step of a command that has been awaited, or asks for it if it could not be
// asked together with others.
func (l *locker) finishLock(one *batchedLock) (lockcmd.Reply, *lockcmd.Step) {
	var a lockcmd.Answer
	err := one.err
	switch {
	case one.answer != nil:
		a.Value, err = one.answer.Value()
		switch {
		case err != nil:
		case isNoScript(a.Value, err):
			a.Value, err = l.evalMissing(l.askNow, one.Call, one.began)
		case leftOut(a.Value), denied(one.answer, a.Value):
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

// notRun reports whether a call must be asked again: others of its batch took too long, or Redis
// has refused all of them, or doesn't have the script.
func (l *locker) notRun(a *passthrough.Answer) bool {
	if a.Good() {
		return false
	}
	v, err := a.Value()
	return err == nil && (leftOut(v) || denied(a, v) ||
		isNoScript(v, err) && !l.server.cfg.Locks.Cluster)
}

// askAgain asks together, once more, those commands of a list that have been answered but have not
// run: alone they would cost a round trip each. Those that don't run then either go alone, the
// first at once. A cluster's nodes would each have to be sent a script that is missing. end must be
// called when the first has been answered: others wait for the scripts that are loaded.
func (l *locker) askAgain(list []batchedLock) (end func()) {
	end = func() {}
	mine := false
	if v, err := list[0].answer.Value(); isNoScript(v, err) {
		if loaded, leads := l.server.scripts.begin(false, "", list[0].began); leads {
			end, mine = loaded, true
		}
	}
	if l.retryRoute(passthrough.Shared) != nil {
		return end // finishLock tries again, and knows what to say
	}
	var missing []*lockcmd.Script
	for i := range list {
		one := &list[i]
		if one.answer == nil || !one.answer.Arrived() || !l.notRun(one.answer) {
			continue
		}
		v, err := one.answer.Value()
		script := one.Call.Script
		if mine && isNoScript(v, err) && !slices.Contains(missing, script) {
			for _, s := range append(script.Together(false), script) {
				missing = append(missing, s)
				l.load(s, one.Keys[0])
			}
		}
		one.answer = l.pipe.Ask(one.request())
	}
	return end
}

// denied reports whether a batch was refused for want of a right, before any of its calls has run.
func denied(a *passthrough.Answer, v resp.Value) bool {
	return a.Refused() && strings.HasPrefix(serverErrorText("", string(v.Text)), "NOPERM")
}

// leftOut reports whether a script was not run because others of its batch took too long.
func leftOut(v resp.Value) bool { return v.Type == '+' && string(v.Text) == "LATER" }
