package proxy

// A lock command, in its turn among a session's requests.

import (
	"fmt"
	"strings"
	"time"

	"lockproxy/internal/names"
	"lockproxy/internal/resp"
	"lockproxy/lockcmd"
	"lockproxy/lockcmd/syntax"
	"lockproxy/passthrough"
)

// locker runs the lock commands of a session.
type locker struct {
	*common
	x     *exchange
	steps lockSession
	begun lockBatch   // commands that are asked together
	done  lockReplies // to those that have been finished
}

// runLock begins a lock command in its turn. Nothing that follows is sent before it has its reply.
func (l *locker) runLock(cmd *command, req resp.Request) {
	spec := cmd.lock
	l.pipe.AwaitRoom()
	if l.pipe.Blocks() || spec.Waits(req.Args) && l.pipe.Status().Owes {
		l.x.await(l.pipe.Barrier()) // it begins when those before it have ended
	}
	state, settled := l.pipe.State()
	// A command that waits joins the queue before there is a way to the upstream.
	if !spec.Waits(req.Args) || !settled || !state.Shareable() {
		if err := l.x.route(cmd.way, nil); err != nil {
			l.x.reply(encodeError(err))
			return
		}
		state = l.x.awaitState()
	}
	err := spec.CheckArity(req.Args)
	switch {
	case state.Has(passthrough.InMulti):
		if err == nil {
			err = errInMulti
		}
		l.pipe.Relay(passthrough.Request{Raw: abortMulti, Instead: encodeError(err)}, nil)
		return
	case err == nil && state.Has(passthrough.Untracked):
		err = errUntracked
	case err == nil && state.Has(passthrough.Watching) && spec.Name == "fence":
		err = errWatching
	case err == nil && state.Subscribed():
		err = errSubscribed(spec.Name)
	}
	if err != nil {
		l.x.reply(l.x.unlessNoAuth(state, encodeError(err)))
		return
	}
	l.startLock(cmd, req.Args, true, nil)
}

// give gives the client the answer to a lock command that has run by itself.
func (l *locker) give(spec *syntax.Spec, reply lockcmd.Reply) {
	state, _ := l.pipe.State()
	text := encodeReply(spec.Name, reply, state.Proto)
	isLate := l.steps.isLate()
	if !isLate { // whether the client must log in would be known even later
		text = l.x.unlessNoAuth(state, text)
	}
	if reply.Given != nil && !state.Muted() { // a muted client has asked for no token
		l.client.holder.MarkSent(reply.Given, l.x.sentPosition(len(text)))
	}
	// A reply in its turn would come behind the answer that is late.
	if !isLate || state.Muted() || !l.pipe.Reply(text, passthrough.Now) {
		l.x.reply(text)
	}
}

// observeLock tells the Observer how long a lock command took that has ended.
func (l *locker) observeLock(spec *syntax.Spec, began time.Time) {
	if observer := l.server.cfg.Observer; observer != nil {
		observer.CommandTook(kindOf(spec), time.Since(began))
	}
}

// refuseLarge answers a lock command that is too large to be held, once all of it has been skipped.
func (l *locker) refuseLarge(spec *syntax.Spec) {
	name, limit := strings.ToUpper(spec.Name), l.server.cfg.ClientBuffer
	err := syntax.UsageError(fmt.Sprintf("ERR the %s command is larger than %d bytes "+
		"(--client-buffer): nothing was run", name, limit))
	state := l.x.awaitState()
	if state.Has(passthrough.InMulti) && l.x.route(passthrough.Home, nil) == nil {
		l.pipe.Relay(passthrough.Request{Raw: abortMulti, Instead: encodeError(err)}, nil)
		return
	}
	l.x.reply(l.x.unlessNoAuth(state, encodeError(err)))
}

// abortMulti is a request that every Redis refuses to queue, so that it aborts the transaction, as
// a command does that is not allowed there.
var abortMulti = resp.AppendCommand(nil, "GET")

// runsAs is what a lock command runs as on a connection in this state.
func (l *locker) runsAs(state passthrough.State) lockcmd.Client {
	l.client.holder.SetName(state.Name)
	return lockcmd.Client{Holder: &l.client.holder, As: state.AnyProto(), Waker: l.x}
}

// login is the client's present login, according to the replies so far.
func (l *locker) login() names.Identity {
	state, _ := l.pipe.State()
	return state.AnyProto()
}

// lostPush is how long a client may take to read the push that a session lock is lost. Then its
// connection is closed.
const lostPush = 50 * time.Millisecond

// lockLost closes the connection of a client whose session lock has been lost. With RESP3 the
// client gets a push before. The push alone would not do: client libraries drop pushes that they do
// not know.
func (l *locker) lockLost(key string, token int64) {
	if state, _ := l.pipe.State(); state.Proto == 3 && l.pipe.Push(encodeLockLost(key, token)) {
		time.AfterFunc(lostPush, l.client.closeRaw)
		return
	}
	l.client.closeRaw()
}
