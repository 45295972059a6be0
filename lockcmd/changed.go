package lockcmd

import (
	"context"
	"math/rand/v2"
	"time"

	"lockproxy/internal/loopguard"
	"lockproxy/internal/names"
	"lockproxy/internal/resp"
	"lockproxy/lockcmd/chain"
	"lockproxy/lockcmd/failure"
	"lockproxy/lockcmd/lockinfo"
	"lockproxy/lockcmd/queue"
	"lockproxy/lockcmd/script"
	"lockproxy/lockcmd/syntax"
)

// watching is a LOCKINFO … CHANGED … WAIT. It ends as soon as the lock's holder has another token
// than the client knows, or when its time has expired.
type watching struct {
	*queries
	s    session
	id   names.Lock
	o    syntax.Info
	w    *queue.Wait
	over moment
	ask  moment // when it asks, unless it is woken before
	woke bool   // since it last asked
}

func (l *queries) changedStep(c Client, key string, o syntax.Info) *Step {
	return &Step{Wait: func(_ context.Context, on chain.Upstream, wake func()) chain.Turn {
		id := names.Lock{DB: c.As.DB, Key: key}
		t := &watching{queries: l, s: session{c, on}, id: id, o: o,
			w: l.queues.Of(id).Watch(c.Connection, wake)}
		if o.Wait > 0 {
			t.over.in(o.Wait)
		}
		t.ask.in(0)
		return t
	}}
}

// Due implements chain.Turn.
func (t *watching) Due() time.Time {
	if !t.over.IsZero() && t.over.Before(t.ask.Time) {
		return t.over.Time
	}
	return t.ask.Time
}

// Go implements chain.Turn.
func (t *watching) Go(ctx context.Context, inLoop bool) (reply Reply, progress chain.Progress) {
	t.woke = t.w.TakeWoken() || t.woke
	switch {
	case context.Cause(ctx) == failure.ErrGone:
		reply = chain.Failed(failure.ErrGone)
	case t.w.Lead.State().Err != nil:
	case !t.woke && !t.ask.isDue() && !t.over.isDue():
		return Reply{}, chain.Sleeps
	case inLoop:
		return Reply{}, chain.Asks
	default:
		var ended bool
		if reply, ended = t.look(); !ended {
			return Reply{}, chain.Sleeps
		}
	}
	if refused := t.w.EndWatch(); refused != nil {
		reply = waitFailed(refused)
	}
	return reply, chain.Ended
}

// look asks for the holder.
func (t *watching) look() (reply Reply, ended bool) {
	loopguard.MayWait()
	last, c := t.over.isDue(), t.infoCall(t.id.Key)
	t.woke = false
	before, _ := t.tracking.Follows(t.s.As, t.id.Key)
	answer, err := t.s.Eval(&c)
	err = answer.Failure(err)
	changed := err == nil && holdersToken(answer.Value) != t.o.Token
	if changed || last || err != nil && !t.isTransient(err) {
		return t.infoReply(t.id, answer.Value, err), true
	}
	t.tracking.Want(t.s.As, t.id.Key)
	after, _ := t.tracking.Follows(t.s.As, t.id.Key)
	t.ask.in(watchPause(answer.Value, before && after))
	return Reply{}, false
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
