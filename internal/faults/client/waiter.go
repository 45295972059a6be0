//go:build linux

package client

import (
	"context"
	"math/rand/v2"
	"strconv"
	"time"

	"lockproxy/internal/faults/history"
)

// Mortal is a waiter that wants a lock for much longer than anybody would wait for it to expire, and dies while it waits: its
// connection closes before the answer reaches it. If ever it keeps the lock, others find no way in. If the answer has reached it the lock
// is its own, and it gives it back by another connection. Every other one dies by a reset, which doesn't tell the two apart: its
// lock is a short one.
type Mortal struct {
	ID      int
	Targets []Target
	Key     string
	Random  *rand.Rand
	Notes   Noter
	Timeout time.Duration // of the lock that it never gets
	Short   time.Duration // of that of one which dies by a reset
}

// Run lives and dies until ctx ends.
func (m *Mortal) Run(ctx context.Context) {
	for ctx.Err() == nil {
		at := m.Targets[m.Random.IntN(len(m.Targets))]
		c, err := Dial(at.Addr)
		if err != nil {
			pause(ctx, 100*time.Millisecond)
			continue
		}
		m.live(ctx, c, at)
		pause(ctx, time.Duration(m.Random.Int64N(int64(50*time.Millisecond))))
	}
}

func (m *Mortal) live(ctx context.Context, c *Conn, at Target) {
	defer c.Close()
	if _, err := c.Do(patience, "PING"); err != nil {
		return
	}
	timeout, resets, session := m.Timeout, m.Random.IntN(2) == 0, m.Random.IntN(3) == 0
	if resets {
		timeout = m.Short
	}
	op := m.Notes.Begin(history.Op{Client: m.ID, Kind: history.Lock, Key: m.Key, Proxy: at.Proxy, Timeout: timeout.Nanoseconds(), Wait: true, HungUp: true,
		Session: session})
	args := []string{"LOCK", m.Key, seconds(timeout), "WAIT", "0"}
	if session {
		args = append(args, "SESSION")
	}
	c.Send(args...)
	pause(ctx, time.Duration(m.Random.Int64N(int64(400*time.Millisecond))))
	if resets {
		c.Reset()
		m.Notes.End(op, func(op *history.Op) { op.Left = history.Now() })
		return
	}
	r, err := c.Die()
	if err != nil || session { // a session lock ends with its connection
		m.Notes.End(op, func(op *history.Op) { op.Left = history.Now() })
		return
	}
	m.Notes.End(op, func(op *history.Op) { settle(op, r, err, judgeLock) })
	if op.Acquired() {
		m.giveBack(at, op.Result)
	}
}

// giveBack releases a lock by its token, from another connection. Each try is noted: one whose outcome is unknown may have done it.
func (m *Mortal) giveBack(at Target, token int64) {
	for range 50 { // in the midst of a fault it may take long
		unlock := m.Notes.Begin(history.Op{Client: m.ID, Kind: history.Unlock, Key: m.Key, Proxy: at.Proxy, Token: token})
		var r Reply
		c, err := Dial(at.Addr)
		if err == nil {
			r, err = c.Do(patience, "UNLOCK", m.Key, strconv.FormatInt(token, 10))
			c.Close()
		}
		m.Notes.End(unlock, func(op *history.Op) { settle(op, r, err, judgeFlag) })
		if unlock.Outcome == history.OK {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}
