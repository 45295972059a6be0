//go:build linux

package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"time"

	"lockproxy/internal/test/faults/history"
	"lockproxy/internal/test/wire"
)

// Target is an address of a proxy, direct or through a relay.
type Target struct {
	Proxy int
	Addr  string
}

// Noter records what a client does: a history.Recorder, or in a separate process a history.Stream.
type Noter interface {
	Begin(history.Op) *history.Op
	End(*history.Op, func(*history.Op))
	Add(history.Op)
}

// Locker is a client that competes for locks. Run returns when its context ends.
type Locker struct {
	ID      int
	Conn    int      // which of the client's connections, if it has several
	Targets []Target // it changes to another when one fails
	Keys    []string
	Random  *rand.Rand
	Notes   Noter
	Think   time.Duration // longest pause between two of its rounds
	// Sessions is how many of 100 locks are session locks.
	Sessions int
	// Owners is how many of 100 LOCKs name an owner; 0 means a few.
	Owners int
	// Shared is how many of 100 LOCKs ask to share the lock, a third of them up to a limit.
	Shared int
	// Places: it asks for places in the line and never waits. Of 100 locks that it is given, it
	// makes Shared ones shared.
	Places bool
	// Pairs are locks in one slot, each with the other, which it takes together at times.
	Pairs map[string]string
	// Late and Forgotten are how many of 100 locks it holds beyond their lease, and never releases;
	// 0 means a few.
	Late, Forgotten int
	// Shortest and Longest are the timeouts of its locks.
	Shortest, Longest time.Duration

	conn *Conn
	at   Target
	resp int
	held held
}

// held is the lock that a Locker relies on; key is "" if none.
type held struct {
	key     string
	token   int64
	session bool
	until   int64 // by history.Now; without meaning for a session lock
	// twice: an earlier LOCK by its owner can run again, and is then the last to have asked
	twice bool
}

// patience is how long a client waits for a reply beyond the wait that it asked for.
const patience = 6 * time.Second

// Run competes until ctx ends.
func (l *Locker) Run(ctx context.Context) {
	defer l.hangUp()
	for ctx.Err() == nil {
		if l.conn == nil && !l.connect() {
			pause(ctx, 20*time.Millisecond+l.upTo(80*time.Millisecond))
			continue
		}
		l.compete(ctx)
		pause(ctx, l.upTo(l.Think))
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func (l *Locker) upTo(d time.Duration) time.Duration {
	return time.Duration(l.Random.Int64N(int64(d) + 1))
}

func (l *Locker) chance(percent int) bool { return l.Random.IntN(100) < percent }

// connect makes a connection that has reached the upstream.
func (l *Locker) connect() bool {
	l.at = l.Targets[l.Random.IntN(len(l.Targets))]
	c, err := Dial(l.at.Addr)
	if err != nil {
		return false
	}
	hello := []string{"PING"}
	if l.resp = 2 + l.Random.IntN(2); l.resp == 3 {
		hello = []string{"HELLO", "3"}
	}
	if r, err := c.Do(patience, hello...); err != nil || r.IsError() {
		noteFirst(l.Notes, l.ID, l.at, hello[0], r, err)
		c.Close()
		return false
	}
	c.Push = l.pushed
	l.conn = c
	return true
}

// noteFirst records that a connection's first command was not answered in time, or was refused.
func noteFirst(notes Noter, id int, at Target, command string, r Reply, err error) {
	now := history.Now()
	o := history.Op{Client: id, Kind: history.Echo, Key: strings.ToLower(command), Proxy: at.Proxy,
		Call: now}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		o.Call, o.Left, o.Got = now-patience.Nanoseconds(), now, err.Error()
	case err == nil && r.IsError():
		o.Return, o.Outcome, o.Got = now, history.Refused, r.Text
	default:
		return
	}
	notes.Add(o)
}

func (l *Locker) pushed(elems []string) {
	if len(elems) == 3 && elems[0] == "locklost" && elems[1] == l.held.key &&
		elems[2] == strconv.FormatInt(l.held.token, 10) {
		l.lost()
	}
}

// lost records that the session lock is gone.
func (l *Locker) lost() {
	if l.held.key != "" && l.held.session {
		l.Notes.Add(history.Op{Client: l.ID, Conn: l.Conn, Kind: history.Lost,
			Key: l.held.key, Proxy: l.at.Proxy, Token: l.held.token, Session: true,
			Call: history.Now()})
		l.held = held{}
	}
}

// hangUp closes the connections of an owner.
func hangUp(conns []*Locker) {
	for _, c := range conns {
		c.hangUp()
	}
}

// hangUp closes the connection, if there is one.
func (l *Locker) hangUp() {
	if l.conn == nil {
		return
	}
	l.lost()
	l.held = held{}
	l.conn.Close()
	l.conn = nil
}

// do sends a command and records its outcome. It returns false when the connection is gone.
func (l *Locker) do(o history.Op, wait time.Duration, judge func(Reply, *history.Op),
	args ...string) (history.Op, bool) {
	o.Client, o.Conn, o.Proxy = l.ID, l.Conn, l.at.Proxy
	op := l.Notes.Begin(o)
	var r Reply
	err := l.conn.Send(args...)
	sent := history.Now()
	if err == nil {
		r, err = l.conn.Receive(wait + patience)
	}
	l.Notes.End(op, func(op *history.Op) {
		if setOutcome(op, r, err, judge); op.Wait {
			op.Sent = sent
		}
	})
	if err != nil || op.Outcome == history.Unknown || op.Outcome == history.Garbled {
		l.hangUp()
		return *op, false
	}
	return *op, true
}

func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', 3, 64) }

// Register is the key that a lock's fenced writes go to: in
// the same slot, if the lock's name has a hash tag.
func Register(key string) string { return "register:" + key }

// compete makes one attempt at a lock and uses it if it is acquired.
func (l *Locker) compete(ctx context.Context) {
	key := l.Keys[l.Random.IntN(len(l.Keys))]
	if other, ok := l.Pairs[key]; ok && l.chance(30) {
		l.competeForBoth(ctx, key, other)
		return
	}
	if l.Places {
		l.competeByPlace(ctx, key)
		return
	}
	o := history.Op{Kind: history.Lock, Key: key}
	timeout := l.timeout()
	wait := time.Duration(0)
	args := []string{"LOCK", key, seconds(timeout)}
	if l.chance(75) {
		wait = 50*time.Millisecond + l.upTo(4*time.Second)
		args = append(args, "WAIT", seconds(wait))
		o.Wait = true
	}
	if l.chance(l.Sessions) {
		args = append(args, "SESSION")
		o.Session = true
	}
	if l.chance(l.Shared) {
		o.Shared = true
		if l.chance(33) {
			o.Limit = 1 + l.Random.IntN(3)
			args = append(args, "LIMIT", strconv.Itoa(o.Limit))
		} else {
			args = append(args, "SHARED")
		}
	}
	if l.chance(cmp.Or(l.Owners, 20)) {
		o.Owner = fmt.Sprintf("owner-%d-%d", l.ID, l.Random.Int64())
		args = append(args, "OWNER", o.Owner)
	}
	o.Timeout = timeout.Truncate(time.Millisecond).Nanoseconds()
	if o.Wait && l.chance(6) {
		l.leaveWithin(ctx, o, wait, args)
		return
	}
	twice := false
	if o.Owner != "" && l.chance(15) {
		// it asks again elsewhere
		twice = true
		if l.leaveWithin(ctx, o, 200*time.Millisecond, args); !l.connect() {
			return
		}
	}
	got, ok := l.do(o, wait, judgeLock, args...)
	// what OWNER is for: ask again
	if !ok && o.Owner != "" && got.Outcome == history.Unknown && l.connect() {
		twice = true
		got, ok = l.do(o, wait, judgeLock, args...)
	}
	if ok && got.Acquired() {
		l.held = held{key, got.Result, o.Session, got.Call + o.Timeout, twice}
		l.use(ctx)
	} else if ok && l.chance(40) && l.read(key) && l.chance(40) {
		l.intrude(key)
	}
}

// intrude tries to release another client's lock.
func (l *Locker) intrude(key string) {
	l.do(history.Op{Kind: history.Unlock, Key: key}, 0, judgeFlag, "UNLOCK", key)
}

func (l *Locker) timeout() time.Duration { return l.Shortest + l.upTo(l.Longest-l.Shortest) }

// leaveWithin asks for a lock and closes the connection before the reply, or without reading it.
func (l *Locker) leaveWithin(ctx context.Context, o history.Op, wait time.Duration, args []string) {
	o.Client, o.Proxy, o.HungUp = l.ID, l.at.Proxy, true
	op := l.Notes.Begin(o)
	if l.conn.Send(args...) == nil {
		pause(ctx, l.upTo(min(wait, 500*time.Millisecond)))
	}
	if o.Owner != "" && l.chance(50) {
		l.conn.Reset()
	}
	l.hangUp()
	l.Notes.End(op, func(op *history.Op) { op.Left = history.Now() })
}

// use is what a holder does: nothing for a while, fenced writes, a RELOCK. Then it releases the
// lock, forgets to, or comes too late.
func (l *Locker) use(ctx context.Context) {
	h := l.held
	for n := l.Random.IntN(3); n > 0 && l.conn != nil; n-- {
		if l.write(h) && l.chance(30) {
			l.read(h.key)
		}
	}
	if l.conn == nil || !l.hold(ctx, l.upTo(15*time.Millisecond)) {
		return
	}
	if l.chance(8) && !l.relock(h) {
		return
	}
	switch {
	case h.session && l.chance(15): // longer than its timeout
		if !l.hold(ctx, l.Longest+l.upTo(2*l.Longest)) {
			return
		}
	case l.chance(cmp.Or(l.Late, 8)): // too late
		if !l.hold(ctx, time.Duration(h.until-history.Now())+l.upTo(100*time.Millisecond)) ||
			l.chance(70) && !l.write(h) {
			return
		}
	case l.chance(cmp.Or(l.Forgotten, 2)): // forgotten, or the client dies
		l.hangUp()
		return
	}
	l.release(h)
}

// hold lets time pass and watches for notices. It returns false if the connection is gone.
func (l *Locker) hold(ctx context.Context, d time.Duration) bool {
	if ctx.Err() != nil {
		d = 0
	}
	if err := l.conn.Idle(max(d, time.Millisecond)); err != nil {
		if errors.Is(err, wire.ErrMalformed) {
			l.Notes.Add(history.Op{Client: l.ID, Kind: history.Echo, Proxy: l.at.Proxy,
				Outcome: history.Garbled, Got: err.Error(), Call: history.Now()})
		}
		l.hangUp()
		return false
	}
	return true
}

func (l *Locker) release(h held) {
	args := []string{"UNLOCK", h.key, strconv.FormatInt(h.token, 10)}
	if !h.twice && l.chance(30) {
		args = args[:2] // the lock that this connection took
	}
	o, ok := l.do(history.Op{Kind: history.Unlock, Key: h.key, Token: h.token, Session: h.session},
		0, judgeFlag, args...)
	if ok && o.Outcome != history.OK {
		// the connection still holds the lock, and a session lock is renewed while it is open
		l.hangUp()
	}
	l.held = held{}
}

func (l *Locker) relock(h held) bool {
	timeout := l.timeout()
	o := history.Op{Kind: history.Relock, Key: h.key, Token: h.token, Session: h.session,
		Timeout: timeout.Truncate(time.Millisecond).Nanoseconds()}
	_, ok := l.do(o, 0, judgeFlag, "RELOCK", h.key, strconv.FormatInt(h.token, 10),
		seconds(timeout))
	return ok
}

// write is a fenced write of a unique value.
func (l *Locker) write(h held) bool {
	value := fmt.Sprintf("%d:%d:%d", h.token, l.ID, l.Random.Int64())
	_, ok := l.do(history.Op{Kind: history.Fence, Key: h.key, Token: h.token, Value: value,
		Session: h.session}, 0, judgeStatus,
		"FENCE", h.key, strconv.FormatInt(h.token, 10), "SET", Register(h.key), value)
	return ok
}

func (l *Locker) read(key string) bool {
	_, ok := l.do(history.Op{Kind: history.Get, Key: key}, 0, judgeValue, "GET", Register(key))
	return ok
}
