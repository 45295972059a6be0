package proxy

// Commands that wait for other clients. Meanwhile their session is parked like any other: the loop
// reads on, sees that the client closes, and takes the command on when that has been woken.

import (
	"errors"
	"net"
	"syscall"
	"time"

	"lockproxy/internal/eventloop"
	"lockproxy/internal/loopguard"
	"lockproxy/lockcmd/chain"
	"lockproxy/lockcmd/failure"
	"lockproxy/lockcmd/syntax"
)

// waiting is a command that waits for other clients.
type waiting struct {
	turn  chain.Turn
	timer *time.Timer       // wakes the turn when it is due; nil until it is needed
	woken chan struct{}     // holds one: the turn can go on; for a session that no loop reads
	asks  bool              // a goroutine must take the turn on
	gone  bool              // the client has closed, though not all that it has sent could be read
	end   func(chain.Reply) // gives the client its answer
}

// beginTurn begins a lock command that waits for other clients.
func (l *locker) beginTurn(spec *syntax.Spec, step *chain.Step) {
	l.server.blocked.begin(l.common, true)
	l.steps.waits = true
	l.waits = &waiting{woken: make(chan struct{}, 1), end: func(reply chain.Reply) {
		l.steps.waits = false
		l.server.blocked.end(l.common, l.steps.late)
		l.give(spec, reply)
	}}
	l.waits.turn = step.Wait(&l.x.command, &l.steps, l.waits.waker(l.client.reg))
	l.goOn(nil)
}

// waker returns the function by which the turn says that it can go on.
func (w *waiting) waker(reg *eventloop.Registration) func() {
	return func() {
		select {
		case w.woken <- struct{}{}:
		default:
		}
		reg.Post()
	}
}

// sleep has the turn woken when it is due.
func (w *waiting) sleep(reg *eventloop.Registration) {
	due := w.turn.Due()
	switch {
	case due.IsZero():
	case w.timer == nil:
		w.timer = time.AfterFunc(time.Until(due), w.waker(reg))
	default:
		w.timer.Reset(time.Until(due))
	}
}

// goOn takes the command that waits on. In an event loop, where it is not nil, it leaves to a
// goroutine what takes an answer.
func (l *locker) goOn(it *eventloop.Iteration) chain.Progress {
	reply, progress := chain.Reply{}, chain.Asks
	if state, _ := l.pipe.State(); it == nil || state.Admitted { // see give
		reply, progress = l.waits.turn.Go(&l.x.command, it != nil)
	}
	if it == nil {
		l.x.command.end()
	}
	if it == nil && (progress == chain.Sleeps || l.client.is(locking)) {
		l.pipe.Flush(nil) // forgets a route that failed during the wait
	}
	l.waits.asks = progress == chain.Asks
	switch progress {
	case chain.Sleeps:
		l.client.setPhase(locking)
		l.client.guard.Start()
		l.waits.sleep(l.client.reg)
	case chain.Ended:
		w := l.waits
		l.waits = nil
		if w.timer != nil {
			w.timer.Stop()
		}
		w.end(reply)
		l.client.setPhase(serving)
	}
	return progress
}

// awaitTurn waits in a session that no loop reads until the command can go on, or more has come from
// the client, or its end.
func (l *locker) awaitTurn() {
	loopguard.MayWait()
	watch := l.x.in.startWatch(0)
	select {
	case <-l.waits.woken:
	case <-watch.came:
	case <-watch.ended:
	}
	select {
	case <-watch.gone:
		l.waits.gone = true
	default:
	}
	watch.end()
}

// commandContext is the context of a session's lock command, for the session's goroutine, or the loop
// in its place. It ends when a chain.Turn should. To watch the client while the proxy asks costs a
// goroutine, which few questions need: the first call of Done starts it, and end ends it. Err checks
// the client without one.
type commandContext struct {
	*common
	in    *input
	locks *locker
	watch *clientWatch // nil while the client is not watched
}

// Done is closed soon after the client has closed, or the server has begun to shut down.
func (c *commandContext) Done() <-chan struct{} {
	if c.watch == nil {
		c.watch = c.in.startWatch(watchWaiterAfter)
	}
	return c.watch.gone
}

// Deadline implements context.Context.
func (c *commandContext) Deadline() (deadline time.Time, ok bool) { return time.Time{}, false }

// Value implements context.Context.
func (c *commandContext) Value(any) any { return nil }

// Err is why the command is useless by now, as far as is known: ErrGone or ErrLost.
func (c *commandContext) Err() error {
	switch {
	case c.gone(), c.client.drains(), c.locks.waits != nil && c.locks.waits.gone:
		return failure.ErrGone
	case c.pipe.Status().Lost:
		return failure.ErrLost
	}
	return nil
}

// gone reports whether the client is known to have closed: whether the kernel has its FIN or reset,
// and nothing sent before it is left to read. It reads nothing.
func (c *commandContext) gone() bool {
	if c.in.readErr != nil {
		return true
	}
	if c.watch != nil {
		select {
		case <-c.watch.gone:
			return true
		default:
		}
	}
	n, err := c.in.peek()
	return n == 0 && err == nil || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, net.ErrClosed)
}

// end ends the watch of a lock command.
func (c *commandContext) end() {
	if c.watch != nil {
		c.watch.end()
		c.watch = nil
	}
}
