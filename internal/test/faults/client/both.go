//go:build linux

package client

import (
	"context"
	"strconv"
	"time"

	"lockproxy/internal/test/faults/history"
)

// competeForBoth makes one attempt at two locks of one slot by LOCKALL, and uses them if it gets
// them. Each has its own operations in the history, at the same times.
func (l *Locker) competeForBoth(ctx context.Context, key, other string) {
	timeout := l.timeout()
	o := history.Op{Kind: history.Lock, Key: key, With: other, Wait: l.chance(75),
		Timeout: timeout.Truncate(time.Millisecond).Nanoseconds()}
	args := []string{"LOCKALL", seconds(timeout), "2", key, other}
	wait := time.Duration(0)
	if o.Wait {
		wait = 50*time.Millisecond + l.upTo(4*time.Second)
		args = append(args, "WAIT", seconds(wait))
	}
	got, ok := l.doBoth(o, wait, judgeLock, args...)
	if !ok || !got.Acquired() {
		return
	}
	until := got.Call + o.Timeout
	for _, k := range []string{key, other} {
		if l.chance(50) && !l.write(held{key: k, token: got.Result, until: until}) {
			return
		}
	}
	if !l.hold(ctx, l.upTo(15*time.Millisecond)) {
		return
	}
	if l.chance(2) { // the client dies
		l.hangUp()
		return
	}
	o, ok = l.doBoth(history.Op{Kind: history.Unlock, Key: key, With: other, Token: got.Result}, 0,
		judgeReleased, "UNLOCKALL", strconv.FormatInt(got.Result, 10), "2", key, other)
	if ok && o.Outcome != history.OK {
		// the connection still holds the locks: an UNLOCK without a token would release one
		l.hangUp()
	}
}

// doBoth is do for a command that concerns two locks alike.
func (l *Locker) doBoth(o history.Op, wait time.Duration, judge func(Reply, *history.Op),
	args ...string) (history.Op, bool) {
	twin := o
	twin.Key, twin.With, twin.Client, twin.Proxy = o.With, o.Key, l.ID, l.at.Proxy
	second := l.Notes.Begin(twin)
	got, ok := l.do(o, wait, judge, args...)
	l.Notes.End(second, func(op *history.Op) {
		op.Sent, op.Outcome, op.Result, op.Got = got.Sent, got.Outcome, got.Result, got.Got
	})
	return got, ok
}

// judgeReleased judges UNLOCKALL of two locks. If it released one of them it is not known which.
func judgeReleased(r Reply, op *history.Op) {
	switch {
	case r.Type == ':' && (r.Int == 0 || r.Int == 2):
		op.Outcome, op.Result = history.OK, r.Int/2
	case r.Type == ':' && r.Int == 1:
		op.Outcome, op.Got, op.Left = history.Unknown, ":1", history.Now()
	}
}
