package proxy

import (
	"context"
	"time"

	"lockproxy/internal/eventloop"
	"lockproxy/internal/resp"
	"lockproxy/lockcmd/failure"
	"lockproxy/passthrough"
)

// common is what all parts of a session use.
type common struct {
	client *client
	server *Server
	pipe   *passthrough.Pipe
}

// exchange is how a session asks the upstream and answers its client, on the session's goroutine.
type exchange struct {
	*common
	in    *input
	ctx   context.Context // ends with the session
	waker waker
}

// route is passthrough.Pipe.Route.
func (x *exchange) route(way passthrough.Way, it *eventloop.Iteration) error {
	x.awaitJudgement(it)
	return x.pipe.Route(x.ctx, way, it)
}

// routeUntil is route that gives up at a time, with a failure.LateError. A zero time is never. An
// event loop does not wait.
func (x *exchange) routeUntil(
	way passthrough.Way, until time.Time, it *eventloop.Iteration,
) error {
	if it != nil || until.IsZero() {
		return x.route(way, it)
	}
	ctx, cancel := context.WithDeadlineCause(x.ctx, until, failure.LateError{})
	defer cancel()
	return x.pipe.Route(ctx, way, nil)
}

// send is passthrough.Pipe.Send.
func (x *exchange) send(r passthrough.Request, it *eventloop.Iteration) error {
	x.awaitJudgement(it)
	return x.pipe.Send(x.ctx, r, it)
}

// awaitJudgement waits until Redis can judge the client again, if it must. An event loop does not:
// then the Pipe leaves it to the goroutine.
func (x *exchange) awaitJudgement(it *eventloop.Iteration) {
	if it == nil && x.pipe.AwaitsJudgement() {
		x.await(x.pipe.Barrier())
	}
}

// reply gives the client a reply of the proxy's own, in its turn.
func (x *exchange) reply(text []byte) { x.pipe.Reply(text, passthrough.InTurn) }

// ask sends a request of the proxy's own, by the route that the last call of route has chosen, and
// returns the answer once it has arrived.
func (x *exchange) ask(raw []byte) *passthrough.Answer {
	answer := x.pipe.Do(nil, raw)[0]
	x.await(answer)
	return answer
}

// awaitState returns the state of the connection, once every earlier request that can change it has
// been answered.
func (x *exchange) awaitState() passthrough.State {
	state, settled := x.pipe.State()
	if !settled {
		x.await(x.pipe.Barrier())
		state, _ = x.pipe.State()
	}
	return state
}

// answerAfter asks the upstream, and answers the client with what answer makes of the reply. It
// reports false, and does nothing, where only the upstream can answer: within a transaction, and
// where only a few commands are allowed.
func (x *exchange) answerAfter(answer func(raw []byte, proto int) []byte, ask [][]byte) bool {
	if err := x.route(passthrough.Home, nil); err != nil {
		x.reply(encodeError(err)) // a lane may be open, but the answer by it would not be complete
		return true
	}
	state := x.awaitState()
	if state.Has(passthrough.InMulti|passthrough.Untracked) || state.Subscribed() {
		return false
	}
	raw, err := x.ask(resp.AppendCommand(nil, ask...)).Raw()
	if err != nil {
		x.reply(encodeError(err))
	} else {
		x.reply(answer(raw, state.Proto))
	}
	return true
}
