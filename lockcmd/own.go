package lockcmd

import (
	"context"
	"errors"
	"time"

	"lockproxy/internal/names"
	"lockproxy/internal/resp"
	"lockproxy/lockcmd/background"
	"lockproxy/lockcmd/chain"
	"lockproxy/lockcmd/failure"
	"lockproxy/lockcmd/queue"
	"lockproxy/lockcmd/script"
)

// ownUpstream is how the queues ask for those that wait: on connections of the proxy's own, with
// the login of the one that waits. So neither what a client does nor what happens to its connection
// keeps a free lock from the others. Each question has a bound: see queue.Wait.AnswerBy. A
// connection that is silent for longer is not asked again.
type ownUpstream struct {
	*background.Jobs
	as     names.Identity
	w      *queue.Wait
	client chain.Upstream // the client's connection: new ones may not be let in any more
}

// own is where the queue asks for a client that waits.
func (l *waits) own(s session, w *queue.Wait) session {
	return session{s.Client, ownUpstream{l.Jobs, s.As, w, s.Upstream}}
}

// Eval implements chain.Upstream.
func (o ownUpstream) Eval(c *script.Call) (script.Answer, error) {
	on := o.on(c.Keys[0])
	a, err := on.Eval(c)
	var refused interface{ Said() string }
	if errors.As(err, &refused) {
		return o.client.Eval(c)
	}
	return a, unanswered(on, err)
}

// Get implements chain.Upstream.
func (o ownUpstream) Get(key string, until time.Time) (resp.Value, error) {
	on := o.on(key)
	v, err := on.Get(key)
	var refused interface{ Said() string }
	if errors.As(err, &refused) {
		return o.client.Get(key, until)
	}
	return v, unanswered(on, err)
}

func (o ownUpstream) on(key string) *background.OnClient {
	on := o.Clients.ForQueue(o.Timers.Ctx, o.as, key)
	on.Until = o.w.AnswerBy(time.Now(), on.Opens)
	return on
}

// unanswered is why there is no answer. If the question was sent, it is asked again by a new
// connection.
func unanswered(on *background.OnClient, err error) error {
	var neverSent interface {
		error
		MayHaveRun() bool
	}
	if err == nil {
		return nil
	}
	if errors.As(err, &neverSent) && !neverSent.MayHaveRun() {
		return neverSent
	}
	if !on.Opens {
		on.Renew()
	}
	return failure.ErrUnanswered
}

// lateAnswer takes the answer to the first script of a wait, which goes by the client's connection,
// if it comes later than the others can wait for it. settle gives those who still wait what it
// brings, and returns what nobody may keep.
func (l *waits) lateAnswer(
	late failure.LateError, key string, asked time.Time,
	settle func(script.Answer, error) []queue.Handed,
) {
	l.Timers.After(0, func(ctx context.Context) {
		select {
		case <-late.Answered:
			l.Clients.Ways.Took(key, time.Since(asked)) // that the upstream is far may be new
			l.releases.startAbandoned(queue.Ends{Abandoned: settle(late.Late.Answer())})
		case <-ctx.Done():
		}
	})
}
