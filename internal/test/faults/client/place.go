//go:build linux

package client

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	"lockproxy/internal/test/faults/history"
)

// The times for which places are kept, and the longest pause between two questions for one. So a
// client can ask too late.
const (
	shortestPlace = 300 * time.Millisecond
	longestPlace  = 2 * time.Second
	asksAgain     = 400 * time.Millisecond
)

// competeByPlace asks for a place in the line of a lock, and again until it has the lock, or gives
// its place up. Then the place is left behind.
func (l *Locker) competeByPlace(ctx context.Context, key string) {
	timeout, keep := l.timeout(), shortestPlace+l.upTo(longestPlace-shortestPlace)
	o := history.Op{Kind: history.Lock, Key: key, Session: l.chance(l.Sessions),
		Timeout: timeout.Truncate(time.Millisecond).Nanoseconds(),
		Place:   keep.Truncate(time.Millisecond).Nanoseconds()}
	args := []string{"LOCK", key, seconds(timeout), "PLACE", seconds(keep)}
	if o.Session {
		args = append(args, "SESSION")
	}
	if l.chance(cmp.Or(l.Owners, 20)) {
		o.Owner = fmt.Sprintf("owner-%d-%d", l.ID, l.Random.Int64())
		args = append(args, "OWNER", o.Owner)
	}
	if l.chance(30) {
		args = append(args, "NOTE", fmt.Sprint("asked by client ", l.ID))
	}
	twice, proxy := false, l.at.Proxy
	for ; ; o.Again = true {
		got, ok := l.do(o, 0, judgeLock, args...)
		switch {
		case ok && got.Acquired():
			l.held = held{key, got.Result, o.Session, got.Call + o.Timeout, twice}
			if !l.chance(l.Shared) || l.change(ctx) {
				l.use(ctx)
			}
			return
		case !ok: // an owner's place is at the proxy, whichever connection asks
			twice = true
			if o.Owner == "" || got.Outcome != history.Unknown || !l.connect() ||
				l.at.Proxy != proxy {
				return
			}
		}
		if ctx.Err() != nil || l.chance(4) || !l.hold(ctx, l.upTo(asksAgain)) {
			if o.Again = true; l.conn != nil && l.chance(50) {
				l.leaveWithin(ctx, o, asksAgain, args)
			}
			l.hangUp() // a connection that asked for this lock later would have the same place
			return
		}
	}
}

// change makes the lock that l has a shared one, and at times exclusive again. It returns false if
// the connection is gone.
func (l *Locker) change(ctx context.Context) bool {
	h, timeout := l.held, l.timeout()
	o := history.Op{Kind: history.Relock, Key: h.key, Token: h.token, Session: h.session,
		Shared: true, Timeout: timeout.Truncate(time.Millisecond).Nanoseconds()}
	got, ok := l.do(o, 0, judgeFlag, "RELOCK", h.key, strconv.FormatInt(h.token, 10),
		seconds(timeout), "SHARED")
	if !ok || got.Result != 1 || h.twice || l.chance(50) {
		return ok && l.held.key != ""
	}
	return l.hold(ctx, l.upTo(5*time.Millisecond)) && l.held.key != "" && l.exclude(h)
}

// exclude asks for a lock alone that l shares. The history has a release of the old token and, at
// the same time, a LOCK that is given the new one.
func (l *Locker) exclude(h held) bool {
	timeout := l.timeout()
	old := l.Notes.Begin(history.Op{Client: l.ID, Conn: l.Conn, Kind: history.Unlock, Key: h.key,
		Proxy: l.at.Proxy, Token: h.token, Session: h.session})
	o := history.Op{Kind: history.Lock, Key: h.key, Session: h.session, Again: true,
		Timeout: timeout.Truncate(time.Millisecond).Nanoseconds()}
	got, ok := l.do(o, 0, judgeExclusive, "RELOCK", h.key, strconv.FormatInt(h.token, 10),
		seconds(timeout), "EXCLUSIVE")
	l.Notes.End(old, func(op *history.Op) {
		op.Outcome, op.Left = got.Outcome, got.Left
		switch {
		case got.Acquired():
			op.Result = 1
		case got.Got == "0":
			op.Outcome = history.OK
		case got.Outcome == history.Null: // others share the lock, and nothing changed
			op.Outcome = history.Refused
		}
	})
	if ok && got.Acquired() {
		l.held = held{h.key, got.Result, h.session, got.Call + o.Timeout, false}
	}
	return ok && l.held.key != ""
}

// judgeExclusive judges RELOCK … EXCLUSIVE as a LOCK. The answer 0 says that the old token holds
// nothing.
func judgeExclusive(r Reply, op *history.Op) {
	if judgeLock(r, op); r.Type == ':' && r.Int == 0 {
		op.Outcome, op.Got = history.Null, "0"
	}
}
