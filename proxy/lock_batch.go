package proxy

// Lock commands. Each is a chain of steps: see lockcmd.Step, and question. Consecutive commands of
// a client are asked together: its threads may share the connection. So are those of several
// clients. Each needs the answer to its own script, but none needs another's.

import (
	"slices"
	"time"

	"lockproxy/internal/eventloop"
	"lockproxy/lockcmd"
	"lockproxy/lockcmd/held"
	"lockproxy/lockcmd/syntax"
	"lockproxy/passthrough"
)

// maxLockBatch is how many are asked together.
const maxLockBatch = 64

// lockBatch is the lock commands of a session that have begun and not been finished, in order. Each
// waits for an answer, except perhaps the last, which is asked when those before it are finished.
type lockBatch []batchedLock

type batchedLock struct {
	question
	cmd   *command
	key   string // of the lock that it is about, if that is one
	alone bool   // nothing that follows is sent before it has its reply: it can wait, or need more care
	left  bool   // an event loop has left it to the goroutine, although its answer has arrived
	slept bool   // it has waited for others: then its time is that of a wait, not of a command
	// end gives the client its reply, if that takes more than a lock command's; nil for these.
	end func(lockcmd.Reply)
}

// stuck reports whether only a goroutine can go on with the first command.
func (b lockBatch) stuck() bool {
	return len(b) > 0 && !b[0].asleep && (b[0].answer == nil || b[0].left)
}

// asleep reports whether the only command waits for other clients.
func (b lockBatch) asleep() bool { return len(b) > 0 && b[0].asleep }

// alone reports whether there is only one command, which nothing may follow.
func (b lockBatch) alone() bool { return len(b) > 0 && b[0].alone }

// takes reports whether a command can be asked together with these: all are about one lock, each
// about another, and none can wait for other clients.
func (b lockBatch) takes(spec *syntax.Spec, args [][]byte) bool {
	if len(b) == 0 {
		return true
	}
	return len(b) < maxLockBatch && spec.OneLock && b[0].cmd.lock.OneLock &&
		b[len(b)-1].answer != nil && !b[0].confirms() && !b.alone() && !spec.Waits(args) &&
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
	if reply.Given != nil {
		r.given = append(r.given, givenLock{reply, len(r.text)})
	}
}

// startLock begins a lock command, and asks what it asks for. alone says that nothing may go with
// it. In an event loop, where it is not nil, it does no more than needs no waiting.
func (l *locker) startLock(cmd *command, args [][]byte, alone bool, it *eventloop.Iteration) {
	l.client.publish() // it can take long
	state, _ := l.pipe.State()
	one := batchedLock{cmd: cmd, alone: alone}
	one.began, one.shares, one.again = time.Now(), cmd.lock.OneLock && !alone, alone
	if cmd.lock.OneLock {
		one.key = string(args[1])
	}
	if cmd.lock.Waits(args) {
		one.alone, one.again = true, true
		l.steps.waits = true
		l.server.blocked.begin(l.common, it == nil)
	}
	one.Step = l.server.locks.Begin(cmd.lock, l.runsAs(state), args)
	if cmd.way == passthrough.Home {
		l.pipe.Pin(passthrough.Pinned) // until it is done
	}
	l.start(one, it)
}

// start is startLock for any command that is made of steps.
func (l *locker) start(one batchedLock, it *eventloop.Iteration) {
	if one.Asks != nil {
		l.steps.settle(&one.question, it)
	}
	l.begun = append(l.begun, one)
	if one.answer == nil && len(l.begun) == 1 {
		l.advance(it) // it may ask for nothing
	}
}

// advance takes the lock commands that have begun on, as far as answers have come. It gives the
// client their replies, in order: one that has a lock must not wait for another's answer.
func (l *locker) advance(it *eventloop.Iteration) {
	for i := range l.begun { // what has to be asked again goes together
		if one := &l.begun[i]; one.answer != nil {
			l.steps.settle(&one.question, it)
		}
	}
	done := 0
	for ; done < len(l.begun); done++ {
		one := &l.begun[done]
		state, _ := l.pipe.State()
		one.asleep = false
		if one.left = one.alone && it != nil && !state.Admitted; one.left { // see give
			break
		}
		reply, ended := l.steps.goOn(&one.question, it)
		if !ended {
			break
		}
		if done == 0 {
			l.client.guard.Start()    // an UNLOCK that failed has left a session lock
			l.client.corkIfDraining() // the server may have begun to shut down meanwhile
		}
		l.ended(one, reply, state)
	}
	if l.begun = slices.Delete(l.begun, 0, done); len(l.begun) > 0 {
		l.x.wakeAt(l.begun[0].due())
	} else {
		l.x.waker.stop()
	}
	if l.begun.asleep() {
		l.begun[0].slept = true
		l.client.setPhase(locking)
		l.client.guard.Start()
	}
	l.sendDone()
}

// ended gives the client the reply to a command, or has sendDone do so.
func (l *locker) ended(one *batchedLock, reply lockcmd.Reply, state passthrough.State) {
	if one.cmd.way == passthrough.Home {
		l.pipe.Pin(passthrough.Unpinned)
	}
	if one.end == nil && !one.slept {
		l.observeLock(one.cmd.lock, one.began)
	}
	if l.steps.waits {
		l.steps.waits = false
		l.server.blocked.end(l.common)
	}
	switch {
	case one.end != nil:
		one.end(reply)
	case one.alone:
		l.give(one.cmd.lock, reply)
	default:
		l.done.add(reply, encodeReply(one.cmd.lock.Name, reply, state.Proto))
	}
	l.client.setPhase(serving) // if it has waited
}

// sendDone gives the client the answers of the lock commands that have been finished. If the client
// has only a part of a push, and more commands are to finish, they go with the next answer.
func (l *locker) sendDone() {
	if len(l.done.text) == 0 {
		return
	}
	var sent held.Sent
	if len(l.done.given) > 0 {
		sent = l.x.sentPosition(0)
	}
	if len(l.begun) == 0 {
		l.x.reply(l.done.text)
	} else if !l.pipe.Reply(l.done.text, passthrough.Now) {
		return
	}
	for _, g := range l.done.given {
		at := sent
		at.End += uint64(g.end)
		l.client.holder.MarkSent(g.reply.Given, at)
	}
	clear(l.done.given)
	l.done.given = l.done.given[:0]
	l.done.text = nil
}
