package lockcmd

import (
	"context"
	"errors"
	"net"
	"time"

	"lockproxy/internal/names"
	"lockproxy/internal/resp"
	"lockproxy/lockcmd/background"
	"lockproxy/lockcmd/chain"
	"lockproxy/lockcmd/failure"
	"lockproxy/lockcmd/queue"
	"lockproxy/lockcmd/script"
)

// ownUpstream is how the queues ask for those that wait: by the client's connection as long as that
// answers, and by connections of the proxy's own, with the client's login, once it is silent. So
// neither what a client does nor what happens to its connection keeps a free lock from the others.
// Each question has a bound: see queue.Wait.AnswerBy. A connection that is silent for longer is not
// asked again.
type ownUpstream struct {
	*background.Jobs
	ctx    context.Context // the command's
	as     names.Identity
	w      *queue.Wait
	client chain.Upstream // the client's connection: new ones may not be let in any more
	silent *bool          // that was silent
}

// own is where the queue asks for a client that waits.
func (l *waits) own(ctx context.Context, s session, w *queue.Wait) session {
	return session{s.Client, ownUpstream{l.Jobs, ctx, s.As, w, s.Upstream, new(bool)}}
}

// Eval implements chain.Upstream. It does not wait for a lock that its client no longer needs.
func (o ownUpstream) Eval(c *script.Call) (script.Answer, error) {
	if !c.GivesLocks() { // it releases what its client must not keep
		c.Until = o.w.AnswerBy(time.Now(), true)
	}
	on := o.Clients.ForQueue(o.Timers.Ctx, o.as, c.Keys[0], c.Until)
	if o.asksClient() {
		a, err := o.client.Eval(c)
		*o.silent = failure.IsSilence(err)
		return a, err
	}
	if c.GivesLocks() {
		on.Stops = [2]<-chan struct{}{o.ctx.Done(), o.w.Refused()}
	}
	a, err := on.Eval(c)
	var unfinished background.UnfinishedError
	if errors.As(err, &unfinished) {
		late := failure.LateError{Answered: unfinished.Done(), Late: unfinished}
		if unfinished.Stopped {
			return a, failure.StoppedError{LateError: late, Why: o.w.PollStopped()}
		}
		on.Renew()
		return a, late
	}
	if refused := refusal(err); refused != nil {
		a, err = o.client.Eval(c)
		return a, orRefused(err, refused)
	}
	return a, unanswered(on, err)
}

// Get implements chain.Upstream.
func (o ownUpstream) Get(key string, until time.Time) (resp.Value, error) {
	on := o.Clients.ForQueue(o.Timers.Ctx, o.as, key, until)
	if o.asksClient() {
		v, err := o.client.Get(key, until)
		*o.silent = failure.IsSilence(err)
		return v, err
	}
	v, err := on.Get(key)
	if refused := refusal(err); refused != nil {
		v, err = o.client.Get(key, until)
		return v, orRefused(err, refused)
	}
	return v, unanswered(on, err)
}

// asksClient reports whether the client's connection is asked: as long as it answers.
func (o ownUpstream) asksClient() bool { return !*o.silent && o.w.Answers() }

// refusal is err, if the upstream has refused a login.
func refusal(err error) error {
	var refused interface {
		error
		Said() string
	}
	if errors.As(err, &refused) {
		return refused
	}
	return nil
}

// orRefused is the error of a client's connection, err, which says if it is silent that no other
// connection is let in: then others that wait ask.
func orRefused(err, refused error) error {
	var late failure.LateError
	if errors.As(err, &late) {
		late.Refused = refused
		return late
	}
	return err
}

// answerBy is until when a question that is asked now for w must be answered.
func (l *waits) answerBy(s session, w *queue.Wait) time.Time {
	_, own := s.Upstream.(ownUpstream)
	return w.AnswerBy(time.Now(), own && !w.Answers() &&
		l.Clients.ForQueue(l.Timers.Ctx, w.As, w.Lead.Key, time.Time{}).Opens)
}

// inTime asks for w's locks, by a call that takes none after its end. Only the first script of a
// wait has no end: it goes by the client's connection, where its answer comes or the connection
// ends. If the upstream's clock is not known yet, or has been changed, it tells it.
func (l *waits) inTime(
	s session, w *queue.Wait, call func(ends int64) (*script.Call, error),
) (a script.Answer, err error) {
	_, own := s.Upstream.(ownUpstream)
	for range 3 {
		until, ends := l.answerBy(s, w), int64(0)
		if own {
			ends = l.Clients.Ways.Clock(w.Lead.Key, until)
		}
		c, err := call(ends)
		if err != nil {
			return a, err
		}
		c.Until = until
		a, err = s.Eval(c)
		now, late := script.Late(a.Failure(err))
		if !late {
			return a, err
		}
		l.Clients.Ways.Told(w.Lead.Key, now)
	}
	return script.Answer{}, failure.ErrUnanswered
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
	if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
		on.Renew()
	}
	return failure.ErrUnanswered
}

// lateAnswer takes the answer to a script of a wait that has failed with failed, if that is because
// it was not waited for: the others could not wait so long, or its wait has ended. settle gives
// those who still wait what it brings, and returns what nobody may keep.
func (l *waits) lateAnswer(
	failed error, key string, asked time.Time,
	settle func(script.Answer, error) []queue.Handed,
) {
	late, is := failure.Late(failed)
	if !is {
		return
	}
	l.Timers.After(0, func(ctx context.Context) {
		select {
		case <-late.Answered:
			l.Clients.Ways.Took(key, time.Since(asked)) // that the upstream is far may be new
			l.releases.startAbandoned(queue.Ends{Abandoned: settle(late.Late.Answer())})
		case <-ctx.Done():
		}
	})
}
