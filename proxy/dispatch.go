package proxy

import (
	"errors"

	"lockproxy/internal/commands"
	"lockproxy/internal/eventloop"
	"lockproxy/internal/resp"
	"lockproxy/lockcmd/syntax"
	"lockproxy/passthrough"
)

// dispatcher sends each request of a session where it belongs.
type dispatcher struct {
	*common
	in        *input
	x         *exchange
	locks     *locker
	ends      lockEnds
	batch     batch // requests that are relayed together
	wrote     bool  // a request of the client's may have written
	streaming bool  // a request too large to hold is on its way
	delayed   delayer
	skipped   *syntax.Spec // it is this lock command, which is not relayed; nil for others
}

// verdict says how a session goes on after a request.
type verdict uint8

const (
	goesOn verdict = iota
	ends           // it has no further requests
	// waits says that the request is still in the buffer: only the session's goroutine can handle
	// it, or it stands behind a command that waits.
	waits
)

// dispatch sends one request where it belongs. In an event loop it leaves to the goroutine what
// takes more than that, or can.
func (d *dispatcher) dispatch(req resp.Request, it *eventloop.Iteration) verdict {
	cmd := lookup(req.Args[0])
	r := routeOf(cmd, req)
	if it != nil {
		if d.takesSteps(cmd, req.Args, r.Effect) {
			return waits
		}
		r.Replied = d.x.observeForeign(cmd, req.Args)
		if d.x.send(r, it) != nil {
			return waits
		}
		d.began(cmd, cmd.For(req.Args))
		return goesOn
	}
	d.began(cmd, cmd.For(req.Args))
	if cmd.lock != nil {
		d.locks.runLock(cmd, req)
		return goesOn
	}
	if answer := cmd.answers(req.Args); answer != nil && answer(d.x, req) {
		return goesOn
	}
	if d.delayed.delays(cmd, req.Args) && d.delayed.delaySet(cmd, req) {
		return goesOn
	}
	r.Replied = d.ends.watch(cmd, req.Args, d.x.observeForeign(cmd, req.Args))
	if d.isForOneNode(cmd) {
		// There is no node whose state it could change.
		r.Way, r.Effect = passthrough.Shared, commands.NoEffect
	}
	switch {
	case cmd.syncFirst == nil:
	case !d.wrote:
		r.Way = passthrough.NewHome // what others have written by a spare would count
	default:
		defer d.pipe.Pin(passthrough.Unpinned) // the home, until the command goes there
		var err error
		if r.SyncsWrites, err = d.x.syncWrites(cmd.syncFirst); err != nil {
			d.x.reply(encodeError(err))
			if err == errWritesUnknown {
				return ends
			}
			return goesOn
		}
	}
	d.relay(r)
	if r.Effect == commands.Quit || r.Effect == commands.Reset && d.isNobody() {
		return ends
	}
	return goesOn
}

// began counts a request, and notes whether it may write: row is that of its subcommand.
func (d *dispatcher) began(cmd *command, row *commands.Command) {
	d.client.count(cmd.kind)
	d.wrote = d.wrote || !row.Reads
}

// takesSteps reports whether a request takes more than to be relayed, or can.
func (d *dispatcher) takesSteps(cmd *command, args [][]byte, effect commands.Effect) bool {
	switch effect {
	case commands.Quit, commands.Reset, commands.Unanswered: // see relay
		return true
	}
	return !cmd.oneStep() || cmd.answers(args) != nil || d.ends.needsWatch(cmd, args) ||
		d.delayed.delays(cmd, args) || d.isForOneNode(cmd)
}

// isForOneNode reports whether a client tells one node of a cluster about itself: READONLY, ASKING.
func (d *dispatcher) isForOneNode(cmd *command) bool {
	return cmd.Effect == commands.UnknownState && d.server.cfg.Locks.Cluster
}

// isNobody reports whether the upstream did not let the client in again after RESET, and would
// serve it nevertheless: as the user of a connection without a login. If the client must log in
// first, it can.
func (d *dispatcher) isNobody() bool {
	if state, _ := d.pipe.State(); !state.Has(passthrough.LoginFailed) {
		return false
	}
	reply, _ := d.x.noAuth()
	return reply == nil
}

// awaitReplies is for a login: behind a request without an answer, Redis as of 7.2 and Valkey can
// leave out that they refuse it. Then every reply would be taken for that of the request before.
func (d *dispatcher) awaitReplies() { d.x.await(d.pipe.Barrier()) }

func (d *dispatcher) relay(r passthrough.Request) {
	switch r.Effect {
	case commands.Auth, commands.Hello:
		if d.pipe.Status().Home != nil { // otherwise the login opens it, and can replace the last one
			d.x.route(passthrough.Home, nil) // what sets up the home is sent first
		}
		d.awaitReplies()
	case commands.Unanswered:
		// of a replica it is what it should be
		if state, _ := d.pipe.State(); state.Has(passthrough.Streaming) {
			break
		}
		state := d.x.awaitState()
		if !state.Subscribed() &&
			!state.Has(passthrough.InMulti|passthrough.Untracked|passthrough.Streaming) {
			d.pipe.AwaitRoom()
			d.x.reply(d.x.unlessNoAuth(state, nil)) // Redis ignores it
			return
		}
	}
	if d.send(r) && r.Effect == commands.Reset { // nothing may be sent behind a login that can fail
		d.x.await(d.pipe.Barrier())
		for again := true; again; again = d.pipe.RenewLogin() {
			d.pipe.Flush(nil)
			d.x.await(d.pipe.Barrier())
		}
		d.in.framer.Unauthenticated(true) // perhaps
	}
}

// send relays a request, or answers it if there is no way to Redis.
func (d *dispatcher) send(r passthrough.Request) (sent bool) {
	if r.Effect == commands.Quit {
		d.client.lingering.Store(true)
	}
	err := d.x.send(r, nil)
	switch {
	case err == nil, errors.Is(err, passthrough.ErrClosed): // then the client is closed, too
	case r.Effect == commands.Quit:
		d.pipe.Reply([]byte("+OK\r\n"), passthrough.Finally)
	default:
		d.x.reply(encodeError(err))
	}
	return err == nil
}
