package lockcmd

import (
	"context"
	"time"

	"github.com/tidwall/redcon"

	"lockproxy/internal/resp"
	"lockproxy/lockcmd/held"
	"lockproxy/lockcmd/queue"
	"lockproxy/lockcmd/script"
)

// upstream answers what the steps of a command ask for.
type upstream interface {
	Eval(*script.Call) (script.Answer, error)
	Get(key string) resp.Value
}

// waker is woken for a Client.
type waker chan struct{}

func (w waker) Wake() {
	select {
	case w <- struct{}{}:
	default:
	}
}

// clientOf is a client that run wakes.
func clientOf(h *held.Holder) Client { return Client{Holder: h, Waker: make(waker, 1)} }

// run takes a command of a client on to its reply. ctx ends when the client is disconnected.
func run(ctx context.Context, c Client, on upstream, reply Reply, step *Step) Reply {
	for step != nil {
		var a script.Answer
		var err error
		switch asked := step.Asks.(type) {
		case Turn:
			err = context.Cause(ctx)
		case Script:
			a, err = on.Eval(asked.Call)
		}
		for _, command := range step.Commands().List {
			raw := []byte("$-1\r\n")
			switch v := on.Get(string(command[1])); {
			case v.IsError():
				raw = redcon.AppendError(nil, string(v.Text))
			case !v.IsNull():
				raw = redcon.AppendBulk(nil, v.Text)
			}
			a.Raw = append(a.Raw, raw)
		}
		was := step
		if reply, step = step.Finish(a, err); step != was {
			continue
		}
		if !step.Until.IsZero() {
			defer time.AfterFunc(time.Until(step.Until), c.Waker.Wake).Stop()
		}
		over := ctx.Done()
		if ctx.Err() != nil {
			over = nil
		}
		select {
		case <-c.Waker.(waker):
		case <-over:
		}
	}
	return reply
}

// turnOf is a turn of w, whose client is s, and what it asks by.
func (s *slowSession) turnOf(l *Locks, w *queue.Waiter) (*turn, oneLock) {
	t, by := l.newTurn(clientOf(&s.holder), w.Wait, 0), oneLock{l.waits, w}
	t.by = by
	return t, by
}

// answered drives what a turn does until it goes on with an error.
func (s *slowSession) answered(
	t *turn, begin func(then func(error) (Reply, *Step)) (Reply, *Step),
) (err error) {
	reply, step := begin(func(failed error) (Reply, *Step) {
		err = failed
		return Reply{}, nil
	})
	run(t.Timers.Ctx, t.c, s, reply, step)
	return err
}

// poll has w poll once, as the first waiter.
func (s *slowSession) poll(l *Locks, w *queue.Waiter) error {
	t, by := s.turnOf(l, w)
	return s.answered(t, func(then func(error) (Reply, *Step)) (Reply, *Step) {
		return by.poll(t, false, func(_ script.Attempt, err error) (Reply, *Step) { return then(err) })
	})
}

// pollOrPause is poll that tells the queue how it went.
func (s *slowSession) pollOrPause(l *Locks, w *queue.Waiter) error {
	t, by := s.turnOf(l, w)
	return s.answered(t, func(then func(error) (Reply, *Step)) (Reply, *Step) {
		return by.pollOrPause(t, func(_ time.Duration, err error) (Reply, *Step) { return then(err) })
	})
}

// check has w check once.
func (s *slowSession) check(l *Locks, w *queue.Waiter) error {
	t, by := s.turnOf(l, w)
	return s.answered(t, func(then func(error) (Reply, *Step)) (Reply, *Step) { return by.check(t, then) })
}
