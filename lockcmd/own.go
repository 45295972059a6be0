package lockcmd

import (
	"context"
	"errors"
	"net"
	"time"

	"lockproxy/lockcmd/background"
	"lockproxy/lockcmd/failure"
	"lockproxy/lockcmd/queue"
	"lockproxy/lockcmd/script"
)

// The queues ask for those that wait by the client's connection as long as that answers, and by
// connections of the proxy's own, with the client's login, once it is silent. So neither what a
// client does nor what happens to its connection keeps a free lock from the others. Each question
// has a bound: see queue.Wait.AnswerBy. A connection that is silent for longer is not asked again.

// through asks in the queues' way for a step's answer, and for those of the steps behind it. A
// script that has no time to be answered by releases a lock that a client must not keep.
func (t *turn) through(reply Reply, step *Step) (Reply, *Step) {
	if step == nil || !step.Until.IsZero() {
		return reply, step
	}
	switch step.Asks.(type) {
	case Turn:
		return reply, step
	case Script:
		return t.ask(step, t.w.AnswerBy(time.Now(), true))
	case Commands:
		return t.ask(step, t.answerBy())
	}
	return t.through(step.Finish(script.Answer{}, nil))
}

// ask asks for what a step asks for, until a time.
func (t *turn) ask(step *Step, until time.Time) (Reply, *Step) {
	asked := *step
	asked.Until = until
	if t.silent || !t.w.Answers() { // new connections may not be let in any more
		return t.askOwn(&asked)
	}
	asked.Finish = func(a script.Answer, err error) (Reply, *Step) {
		t.silent = failure.IsSilence(err)
		return t.through(step.Finish(a, err))
	}
	return Reply{}, &asked
}

// ownAnswer is what a connection of the proxy's own has answered, once came is closed.
type ownAnswer struct {
	script.Answer
	err  error
	on   *background.OnClient
	came chan struct{}
}

// askOwn asks by a connection of the proxy's own. Meanwhile t sleeps. It does not wait for a lock
// that its client no longer needs, or has been given by a release.
func (t *turn) askOwn(step *Step) (Reply, *Step) {
	got, stop := &ownAnswer{came: make(chan struct{})}, make(chan struct{})
	as, call, reads := t.w.As, step.Call(), step.Commands().List
	stopped := call == nil || !call.GivesLocks()
	t.Timers.After(0, func(ctx context.Context) {
		if call != nil {
			got.on = t.Clients.ForQueue(ctx, as, call.Keys[0], step.Until)
			got.on.Stop = stop
			got.Answer, got.err = got.on.Eval(call)
		} else {
			got.on = t.Clients.ForQueue(ctx, as, string(reads[0][1]), step.Until)
		}
		for i := 0; i < len(reads) && got.err == nil; i++ {
			var raw []byte
			raw, got.err = got.on.Get(string(reads[i][1]))
			got.Raw = append(got.Raw, raw)
		}
		close(got.came)
		t.c.Waker.Wake()
	})
	return t.until(time.Time{}, func(gone bool) bool {
		at := t.w.Lead.State()
		if !stopped && (gone || at.Ended || at.Err != nil) {
			stopped = true
			close(stop)
		}
		select {
		case <-got.came:
			return true
		default:
			return false
		}
	}, func() (Reply, *Step) { return t.takeOwn(step, got) })
}

// takeOwn goes on with what has been answered by a connection of the proxy's own.
func (t *turn) takeOwn(step *Step, got *ownAnswer) (Reply, *Step) {
	err := got.err
	var unfinished background.UnfinishedError
	if errors.As(err, &unfinished) {
		late := failure.LateError{Answered: unfinished.Done(), Late: unfinished}
		if err = late; unfinished.Stopped {
			err = failure.StoppedError{LateError: late, Why: t.w.PollStopped()}
		} else {
			got.on.Renew()
		}
	} else if refused := refusal(err); refused != nil {
		finish := step.Finish
		step.Finish = func(a script.Answer, err error) (Reply, *Step) {
			return t.through(finish(a, orRefused(err, refused)))
		}
		return Reply{}, step
	} else {
		err = unanswered(got.on, err)
	}
	return t.through(step.Finish(got.Answer, err))
}

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

// answerBy is until when a question that is asked now must be answered.
func (t *turn) answerBy() time.Time {
	return t.w.AnswerBy(time.Now(), !t.w.Answers() &&
		t.Clients.ForQueue(t.Timers.Ctx, t.w.As, t.w.Lead.Key, time.Time{}).Opens)
}

// inTime asks for t's locks, by a call that takes none after its end. If the upstream's clock is
// not known yet, or has been changed, it tells it: then it is asked again, as often as again says.
func (t *turn) inTime(
	again int, call func(ends int64) (*script.Call, error),
	then func(script.Answer, error) (Reply, *Step),
) (Reply, *Step) {
	until, key := t.answerBy(), t.w.Lead.Key
	c, err := call(t.Clients.Ways.Clock(key, until))
	if err != nil {
		return then(script.Answer{}, err)
	}
	return t.ask(&Step{Asks: Script{c}, Finish: func(a script.Answer, err error) (Reply, *Step) {
		now, late := script.Late(a.Failure(err))
		if !late {
			return then(a, err)
		}
		if t.Clients.Ways.Told(key, now); again == 0 {
			return then(script.Answer{}, failure.ErrUnanswered)
		}
		return t.inTime(again-1, call, then)
	}}, until)
}

// maxTold is how often a script is asked again because the upstream's clock was not known.
const maxTold = 2

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

// try asks for t's locks once. others are the waiters behind t that are offered them, too.
func (t *turn) try(how trial, others []*queue.Waiter, then attempted) (Reply, *Step) {
	var c *tryCall
	return t.inTime(maxTold, func(ends int64) (_ *script.Call, err error) {
		how.ends = ends
		c, err = t.beginTry(t.w.As.DB, t.requests(), how)
		return &c.Call, err
	}, func(answer script.Answer, err error) (Reply, *Step) {
		t.lateAnswer(c, err, others)
		return t.through(t.took(c, answer, err, then))
	})
}

// lateAnswer takes the answer to a call that has failed with failed, if that is because it was not
// waited for: the others could not wait so long, or its wait has ended. It gives those who still
// wait what the answer brings, and releases what nobody may keep.
func (t *turn) lateAnswer(c *tryCall, failed error, others []*queue.Waiter) {
	late, is := failure.Late(failed)
	if !is {
		return
	}
	t.Timers.After(0, func(ctx context.Context) {
		select {
		case <-late.Answered:
			answer, err := late.Late.Answer()
			if err == nil { // that the upstream is far may be new
				t.Clients.Ways.Took(c.lockRequests[0].Key, time.Since(c.askedAt))
			}
			a, err := t.finishTry(c, answer, false, err)
			list := t.w.Lead.SettleLate(a, others, err, failure.MayHaveRun(err))
			t.releases.startAbandoned(queue.Ends{Abandoned: list})
		case <-ctx.Done():
		}
	})
}
