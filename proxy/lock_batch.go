package proxy

// Lock commands, as far as they do not wait for others. Each is a chain of steps: see lockcmd.Step.
// An event loop, or the session's goroutine, asks what a step asks for, and finishes the step with
// the answer. Consecutive commands of a client are asked together: its threads may share the
// connection. So are those of several clients. Each needs the answer to its own script, but none
// needs another's.

import (
	"bytes"
	"errors"
	"slices"
	"time"

	"lockproxy/internal/eventloop"
	"lockproxy/internal/upstream"
	"lockproxy/lockcmd"
	"lockproxy/lockcmd/script"
	"lockproxy/passthrough"
)

// maxLockBatch is how many are asked together.
const maxLockBatch = 64

// lockBatch is the lock commands of a session that have begun and not been finished, in order. Each
// has asked the upstream, except perhaps the last, which is finished at once then, or the first, if
// its next step could not be asked in the loop.
type lockBatch []batchedLock

type batchedLock struct {
	*lockcmd.Step
	cmd     *command
	key     string // of the lock that it is about, if that is one
	waits   bool   // it can wait for other clients
	began   time.Time
	answer  *passthrough.Answer   // nil if it was not asked
	answers []*passthrough.Answer // to Step.Do; answer is the last of them
	err     error                 // why it was not asked, if it was to be
}

// call is what asks the upstream for a script's answer.
func (one *batchedLock) call() *passthrough.Call {
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
		if b[n].Call != nil && !a.Good() {
			return n, false
		}
	}
	return n, true
}

// arrived is how many of the first commands have been answered, at least the first.
func (b lockBatch) arrived() int {
	n := 1
	for n < len(b) && b[n].answer != nil && b[n].answer.Arrived() {
		n++
	}
	return n
}

// takes reports whether a command can be asked together with these: all are about one lock, each
// about another, and none can wait for other clients.
func (b lockBatch) takes(spec *lockcmd.Spec, args [][]byte) bool {
	if len(b) == 0 {
		return true
	}
	return len(b) < maxLockBatch && b.asked() && spec.OneLock && b[0].cmd.lock.OneLock &&
		!b[0].waits && !spec.Waits(args) &&
		!slices.ContainsFunc(b, func(one batchedLock) bool {
			return one.key == string(args[1])
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
func (l *locker) startLock(cmd *command, args [][]byte, it *eventloop.Iteration) {
	l.client.publish() // it can take long
	state, _ := l.pipe.State()
	one := batchedLock{cmd: cmd, waits: cmd.lock.Waits(args), began: time.Now()}
	if cmd.lock.OneLock {
		one.key = string(args[1])
	}
	one.Step = l.server.locks.Begin(cmd.lock, l.runsAs(state), args)
	if cmd.way == passthrough.Home {
		l.pipe.Pin(passthrough.Pinned) // until it is done
	}
	l.askStep(&one, it)
	l.begun = append(l.begun, one)
	switch {
	case one.answer != nil:
	case it == nil:
		l.finishLocks(false) // there is nothing to wait for, or it takes long, as with --min-replicas
	case len(l.begun) == 1 && one.asksNothing():
		l.finishFirst(1, it)
	}
}

// goesTogether reports whether a step asks for a script that can go with others.
func (one *batchedLock) goesTogether() bool {
	return one.Call != nil && one.cmd.lock.OneLock && len(one.Call.More) == 0
}

// asksNothing reports whether a step is finished without an answer.
func (one *batchedLock) asksNothing() bool {
	return one.Call == nil && len(one.Do) == 0 && one.Pause == 0 && one.Wait == nil
}

// askStep asks the upstream for a step, if one request is enough: in an event loop, where it is not
// nil, only if it need not wait for that.
func (l *locker) askStep(one *batchedLock, it *eventloop.Iteration) {
	one.answer, one.answers, one.err = nil, nil, nil
	way := passthrough.Shared
	switch {
	case one.asksNothing(), one.Pause > 0, one.Wait != nil, one.Call != nil && one.Call.Confirm.Needed(),
		one.Further && time.Since(one.began) > lockcmd.GoneFor: // see askFor
		return
	case len(one.Do) > 0 && !one.Reads:
		way = passthrough.Home
	}
	if err := l.route(way, it); err != nil {
		if it == nil {
			one.err = err
		}
		return
	}
	switch {
	case len(one.Do) > 0:
		one.answers = l.pipe.Do(it, requestsOf(one.Step)...)
	case one.goesTogether():
		one.answer = l.pipe.Ask(one.call(), it)
	default:
		one.answers = l.pipe.Do(it, l.scriptRequest("EVALSHA", one.Call.Script.SHA, one.Call))
	}
	if n := len(one.answers); n > 0 {
		one.answer = one.answers[n-1]
	}
}

// finishLocks waits for the lock commands that have begun, and gives the client their answers. With
// orInput it returns when it has read more from the client: that can be asked, too.
func (l *locker) finishLocks(orInput bool) {
	if len(l.begun) == 0 {
		return
	}
	l.pipe.AwaitRoom()
	if l.begun[0].answer != nil { // otherwise a failed route must be remembered
		l.pipe.Flush(nil)
	}
	for len(l.begun) > 0 {
		if one := l.begun[0]; one.Wait != nil { // it is alone
			l.begun = l.begun[:0]
			l.give(one.cmd.lock, one.Wait(l.command(), &l.lockSession))
			return
		}
		n := len(l.begun)
		if orInput && l.begun[0].answer != nil {
			if !l.awaitAnswer(&l.begun[0], true) {
				return
			}
			n = l.begun.arrived()
		}
		l.finishFirst(n, nil)
	}
}

// finishFirst finishes the first n of the lock commands that have begun, and gives the client their
// answers. In an event loop, where it is not nil, the first of them that takes another step is
// asked for that, and finished with its answer.
func (l *locker) finishFirst(n int, it *eventloop.Iteration) {
	done := 0
	for ; done < n; done++ {
		one := &l.begun[done]
		if one.answer != nil {
			l.awaitAnswer(one, false)
			if one.goesTogether() && l.notRun(one.answer) {
				end := l.askAgain(l.begun[done:n])
				l.awaitAnswer(one, false)
				end()
			}
		}
		reply, next := l.finishLock(one)
		for ; next != nil; reply, next = l.finishLock(one) {
			one.Step, one.answer, one.err = next, nil, nil
			if one.Wait == nil && (it == nil || one.asksNothing()) {
				continue
			}
			l.askStep(one, it)
			break
		}
		if next != nil {
			break
		}
		if one.cmd.way == passthrough.Home {
			l.pipe.Pin(passthrough.Unpinned)
		}
		l.observeLock(one.cmd.lock, one.began)
		state, _ := l.pipe.State()
		l.done.add(reply, encodeReply(one.cmd.lock.Name, reply, state.Proto))
	}
	l.begun = slices.Delete(l.begun, 0, done)
	l.client.guard.Start()    // an UNLOCK that failed has left a session lock
	l.client.corkIfDraining() // the server may have begun to shut down meanwhile
	l.sendDone()
}

// awaitAnswer waits for the answer to a command that was asked. A client that has a lock must not
// wait for another's: it is given what is done. With orInput it returns false when it has read more
// from the client.
func (l *locker) awaitAnswer(one *batchedLock, orInput bool) (answered bool) {
	if !one.answer.Arrived() {
		l.sendDone()
	}
	return l.awaitUntil(one.answer, time.Time{}, orInput)
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
	var a script.Answer
	err := one.err
	switch {
	case len(one.Do) > 0 && one.answer != nil:
		a.Raw, err = l.repliesTo(one.Step, one.answers)
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
	case err == nil:
		a, err = l.askFor(one.Step, one.began)
	}
	return one.Finish(a, l.failure(err))
}
