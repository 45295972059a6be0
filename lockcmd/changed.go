package lockcmd

import (
	"math/rand/v2"
	"time"

	"lockproxy/internal/names"
	"lockproxy/internal/resp"
	"lockproxy/lockcmd/failure"
	"lockproxy/lockcmd/lockinfo"
	"lockproxy/lockcmd/queue"
	"lockproxy/lockcmd/script"
	"lockproxy/lockcmd/syntax"
)

// watching is a command that waits in no line: a LOCKINFO … CHANGED … WAIT, or a RELOCK … EXCLUSIVE
// WAIT. It asks again when it is woken, after a pause, and when its time has expired.
type watching struct {
	w     *queue.Wait
	sleep *Step
	look  func(t *watching, last bool) *Step // asks
	over  moment
	ask   moment // when it asks, unless it is woken before
	since moment // when the upstream was asked that has been silent since
	woke  bool   // since it last asked
}

// watch begins such a command, for patience; 0 is forever.
func watch(
	q queue.Queue, c Client, patience time.Duration, look func(t *watching, last bool) *Step,
) *Step {
	return &Step{Finish: func(script.Answer, error) (Reply, *Step) {
		t := &watching{w: q.Watch(c.Connection, c.Waker.Wake), look: look}
		t.sleep = &Step{Asks: Turn{}, Finish: t.goOn}
		if patience > 0 {
			t.over.in(patience)
		}
		t.ask.in(0)
		return Reply{}, t.sleep
	}}
}

// goOn takes on a command that sleeps.
func (t *watching) goOn(_ script.Answer, why error) (Reply, *Step) {
	t.woke = t.w.TakeWoken() || t.woke
	switch {
	case why == failure.ErrGone:
		return t.end(errorReply(failure.ErrGone))
	case t.w.Lead.State().Err != nil:
		return t.end(Reply{})
	case t.woke || t.ask.isDue() || t.over.isDue():
		t.woke = false
		return Reply{}, t.look(t, t.over.isDue())
	}
	if t.sleep.Until = t.ask.Time; !t.over.IsZero() && t.over.Before(t.ask.Time) {
		t.sleep.Until = t.over.Time
	}
	return Reply{}, t.sleep
}

// end ends it with a reply, unless others have ended it already.
func (t *watching) end(reply Reply) (Reply, *Step) {
	if refused := t.w.EndWatch(); refused != nil {
		reply = waitFailed(refused)
	}
	return reply, nil
}

// answerBy is until when the answer to a question that is sent now is waited for: the end of the
// wait, but a healthy upstream has had time to answer. Zero is forever.
func (t *watching) answerBy() time.Time {
	by := t.w.AnswerBy(time.Now(), false)
	if t.over.IsZero() || t.over.After(by) {
		by = t.over.Time
	}
	return by
}

// silence is err, or for the last question for how long the upstream has been silent.
func (t *watching) silence(err error, asked time.Time, last bool) error {
	switch {
	case !failure.IsSilence(err):
		t.since = moment{}
		return err
	case t.since.IsZero():
		t.since = moment{asked}
	}
	if last {
		return failure.SilentError(time.Since(t.since.Time))
	}
	return err
}

// changedStep is LOCKINFO … CHANGED: it ends as soon as the lock's holder has another token than
// the client knows.
func (l *queries) changedStep(c Client, key string, o syntax.Info) *Step {
	id := names.Lock{DB: c.As.DB, Key: key}
	return watch(l.queues.Of(id), c, o.Wait, func(t *watching, last bool) *Step {
		info := l.infoCall(key)
		before, _ := l.listener.Follows(c.As, key)
		asked := time.Now()
		return &Step{Asks: Script{&info}, Until: t.answerBy(), Finish: func(
			answer script.Answer, err error,
		) (Reply, *Step) {
			err = t.silence(answer.Failure(err), asked, last)
			changed := err == nil && holdersToken(answer.Value) != o.Token
			if changed || last || err != nil && !l.isTransient(err) {
				return t.end(l.infoReply(id, answer.Value, err))
			}
			l.listener.Want(c.As, key)
			after, _ := l.listener.Follows(c.As, key)
			t.ask.in(watchPause(answer.Value, before && after))
			return Reply{}, t.sleep
		}}
	})
}

// watchPause is for how long the holder that info.lua has told of need not be asked for again.
// followed says that each change of the lock's key is reported. That of a shared lock need not
// change when its holders do.
func watchPause(v resp.Value, followed bool) time.Duration {
	h, held := lockinfo.Read(v)
	pause := queue.MaxPoll - rand.N(queue.MaxPoll/7) // they do not ask all at once
	if followed && h.Holders < 2 && h.Mode != "shared" {
		pause = maxTrustedPoll - rand.N(maxTrustedPoll/10)
	}
	if held {
		pause = min(pause, h.Remaining+time.Millisecond)
	}
	return pause
}

// holdersToken is the token of the holder that info.lua has told of, 0 if the lock is free, and -1
// if another library's client has it.
func holdersToken(v resp.Value) int64 {
	h, held := lockinfo.Read(v)
	switch {
	case !held:
		return 0
	case h.Kind != script.KindLockproxy:
		return -1
	}
	return h.Token
}
