//go:build linux

package client

import (
	"context"
	"math/rand/v2"
	"strconv"
	"time"

	"lockproxy/internal/test/faults/history"
)

// Mortal is a waiter for a lock with a very long timeout, and dies while it waits: its connection
// closes before the reply reaches it. If it ever keeps the lock, no other client gets it. If the
// reply has reached it, the lock is its own, and it releases it through another connection. Every
// other one dies by a reset, which does not tell the two cases apart: its lock has a short timeout.
type Mortal struct {
	ID      int
	Targets []Target
	Key     string
	Random  *rand.Rand
	Notes   Noter
	Timeout time.Duration // of the lock that it never gets
	Short   time.Duration // of the lock of one that dies by a reset
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
	op := m.Notes.Begin(history.Op{Client: m.ID, Kind: history.Lock, Key: m.Key, Proxy: at.Proxy,
		Timeout: timeout.Nanoseconds(), Wait: true, HungUp: true,
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
	m.Notes.End(op, func(op *history.Op) { setOutcome(op, r, err, judgeLock) })
	if op.Acquired() {
		m.giveBack(at, op.Result)
	}
}

// giveBack releases a lock by its token, through another connection. It records each attempt: one
// of unknown outcome can have released it.
func (m *Mortal) giveBack(at Target, token int64) {
	for range 50 { // during a fault it can take long
		unlock := m.Notes.Begin(history.Op{Client: m.ID, Kind: history.Unlock, Key: m.Key,
			Proxy: at.Proxy, Token: token})
		var r Reply
		c, err := Dial(at.Addr)
		if err == nil {
			r, err = c.Do(patience, "UNLOCK", m.Key, strconv.FormatInt(token, 10))
			c.Close()
		}
		m.Notes.End(unlock, func(op *history.Op) { setOutcome(op, r, err, judgeFlag) })
		if unlock.Outcome == history.OK {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}
