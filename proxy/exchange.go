package proxy

import (
	"context"
	"time"

	"lockproxy/internal/eventloop"
	"lockproxy/internal/loopguard"
	"lockproxy/internal/resp"
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
	timer *time.Timer     // of await; nil until it is needed
}

// route is passthrough.Pipe.Route.
func (x *exchange) route(way passthrough.Way, it *eventloop.Iteration) error {
	x.awaitJudgement(it)
	return x.pipe.Route(x.ctx, way, it)
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

// watchWaiting watches the client while its requests wait for a connection.
func (x *exchange) watchWaiting() (end func()) {
	if x.in.readErr != nil {
		return func() {}
	}
	return x.in.startWatch(watchAfter).end
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

const (
	// goneTimeout is how much longer the upstream may take for a client that has closed. It may
	// have closed only its sending side, and be reading still, as "printf … | nc" does.
	goneTimeout = 250 * time.Millisecond
	// watchAfter is how long a session waits for the upstream before it watches its client. A watch
	// costs a goroutine, and most answers come sooner.
	watchAfter = 5 * time.Millisecond
)

// await returns when the answer has arrived. If that takes long, it reads on from the client until
// the buffer is full. If the client closes, so does its connection to the upstream, and the answer
// is a failure.
func (x *exchange) await(answer *passthrough.Answer) { x.awaitUntil(answer, time.Time{}, false) }

// patience is how much longer the upstream may take for the client, which has closed. Redis runs all
// that a client has sent before it closes its side. But a request that blocks is not to take what
// others wait for, and session locks are not to last.
func (x *exchange) patience() time.Duration {
	if x.in.start < x.in.end && !x.pipe.Blocks() && x.client.holder.ShortestLease() == 0 {
		return passthrough.Linger
	}
	return goneTimeout
}

// awaitUntil is await that gives up at a time, and returns false then. A zero time is never. With
// orInput it also returns false when it has read more from the client.
func (x *exchange) awaitUntil(
	answer *passthrough.Answer, until time.Time, orInput bool,
) (answered bool) {
	loopguard.MayWait()
	if answer.Arrived() {
		return true
	}
	x.pipe.Awaiting(true)
	defer x.pipe.Awaiting(false)
	if x.timer == nil {
		x.timer = time.NewTimer(watchAfter)
	} else {
		x.timer.Reset(watchAfter)
	}
	select {
	case <-answer.Done:
		x.timer.Stop()
		return true
	case <-x.timer.C:
	}
	over := make(chan struct{})
	if !until.IsZero() {
		defer time.AfterFunc(time.Until(until), func() { close(over) }).Stop()
	}
	if x.in.readErr == nil {
		w, had := x.in.startWatch(0), x.in.watched
		var came <-chan struct{}
		if orInput {
			came = w.came
		}
		select {
		case <-answer.Done:
		case <-w.ended:
		case <-came:
		case <-over:
		}
		w.end()
		if orInput && x.in.watched != had && x.in.readErr == nil {
			return answer.Arrived()
		}
	}
	if x.in.readErr != nil {
		x.timer.Reset(x.patience())
		select {
		case <-answer.Done:
		case <-over:
		case <-x.timer.C:
			x.pipe.End(passthrough.ClientGone)
		}
		x.timer.Stop()
	}
	select {
	case <-answer.Done:
	case <-over:
	}
	return answer.Arrived()
}
