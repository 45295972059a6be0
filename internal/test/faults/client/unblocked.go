//go:build linux

package client

import (
	"context"
	"strconv"
	"time"

	"lockproxy/internal/test/faults/history"
)

// Unblocked is a client that waits for a lock by one connection, and ends that wait by CLIENT
// UNBLOCK on another.
type Unblocked struct {
	Waits, Ends *Locker // of one ID, each with its own number and random numbers
}

// Run waits, again and again, until ctx ends.
func (u *Unblocked) Run(ctx context.Context) {
	defer hangUp([]*Locker{u.Waits, u.Ends})
	for ctx.Err() == nil {
		if !u.compete(ctx) {
			hangUp([]*Locker{u.Waits, u.Ends}) // an UNBLOCK under way could end a later wait
		}
		pause(ctx, u.Waits.upTo(u.Waits.Think))
	}
}

// compete waits for a lock once. It returns false if a connection is gone.
func (u *Unblocked) compete(ctx context.Context) bool {
	w, e := u.Waits, u.Ends
	if w.conn == nil {
		if !w.connect() {
			return false
		}
		if e.Targets = []Target{w.at}; !e.connect() {
			return false
		}
	}
	id, err := w.conn.Do(patience, "CLIENT", "ID")
	if err != nil || id.Type != ':' {
		return false
	}
	timeout, wait := w.timeout(), 500*time.Millisecond+w.upTo(4*time.Second)
	o := history.Op{Kind: history.Lock, Key: w.Keys[w.Random.IntN(len(w.Keys))], Wait: true,
		Number: id.Int, Timeout: timeout.Truncate(time.Millisecond).Nanoseconds(),
		Within: wait.Truncate(time.Millisecond).Nanoseconds()}
	args := []string{"LOCK", o.Key, seconds(timeout), "WAIT", seconds(wait)}
	if o.Session = w.chance(w.Sessions); o.Session {
		args = append(args, "SESSION")
	}
	answered, ended := make(chan struct{}), make(chan bool)
	go func() { ended <- u.end(ctx, o, answered) }() // ends with the wait, and is waited for below
	got, ok := w.do(o, wait, judgeLock, args...)
	close(answered)
	if ok && got.Acquired() {
		w.held = held{o.Key, got.Result, o.Session, got.Call + o.Timeout, false}
		if ok = w.hold(ctx, w.upTo(15*time.Millisecond)); ok {
			w.release(w.held)
		}
	}
	return <-ended && ok && w.conn != nil
}

// end tries to end a wait, at times more than once, or when it is over. It returns false if the
// connection is gone.
func (u *Unblocked) end(ctx context.Context, o history.Op, answered <-chan struct{}) bool {
	e := u.Ends
	for range 1 + e.Random.IntN(3) {
		select {
		case <-ctx.Done():
			return true
		case <-answered:
			if !e.chance(30) {
				return true
			}
		case <-time.After(e.upTo(1200 * time.Millisecond)):
		}
		unblock := history.Op{Kind: history.Unblock, Key: o.Key, Number: o.Number,
			Want: []string{"TIMEOUT", "ERROR"}[e.Random.IntN(2)]}
		args := []string{"CLIENT", "UNBLOCK", strconv.FormatInt(o.Number, 10), unblock.Want}
		if unblock.Want == "TIMEOUT" && e.chance(50) {
			args = args[:3]
		}
		if _, ok := e.do(unblock, 0, judgeFlag, args...); !ok {
			return false
		}
	}
	return true
}
