//go:build linux

package client

import (
	"context"
	"strconv"
	"time"

	"lockproxy/internal/test/faults/history"
)

// Many is an owner with many connections, which take one session lock together and close one after
// the other. The lock's timeout is long: it must end with the last of them.
type Many struct {
	Name  string
	Key   string
	Conns []*Locker // of one ID, each with its own number; the first has the random numbers
}

const manyLease = 8 * time.Second

// Run competes until ctx ends.
func (m *Many) Run(ctx context.Context) {
	defer hangUp(m.Conns)
	for ctx.Err() == nil {
		m.compete(ctx)
		hangUp(m.Conns)
		pause(ctx, m.Conns[0].upTo(m.Conns[0].Think))
	}
}

// compete takes the lock by some of the connections. The first waits for it.
func (m *Many) compete(ctx context.Context) {
	random := m.Conns[0].Random
	for i, c := range m.Conns[:1+random.IntN(len(m.Conns))] {
		if ctx.Err() != nil || !c.connect() || !m.take(c, i == 0) {
			return
		}
	}
	open := random.Perm(len(m.Conns))
	for _, i := range open {
		c := m.Conns[i]
		if c.conn == nil {
			continue
		}
		if h := c.held; h.key != "" && random.IntN(3) == 0 && !c.write(h) {
			return
		}
		if h := c.held; h.key != "" && random.IntN(20) == 0 {
			c.do(history.Op{Kind: history.Unlock, Key: h.key, Token: h.token, Session: true}, 0,
				judgeFlag, "UNLOCK", h.key, strconv.FormatInt(h.token, 10))
			return
		}
		c.hangUp()
		pause(ctx, c.upTo(5*time.Millisecond))
	}
}

func (m *Many) take(c *Locker, waits bool) bool {
	o := history.Op{Kind: history.Lock, Key: m.Key, Wait: waits, Session: true, Owner: m.Name,
		Timeout: manyLease.Nanoseconds()}
	args := []string{"LOCK", m.Key, seconds(manyLease), "SESSION", "OWNER", m.Name}
	wait := time.Duration(0)
	if waits {
		wait = 4 * time.Second
		args = append(args, "WAIT", seconds(wait))
	}
	got, ok := c.do(o, wait, judgeLock, args...)
	if ok && got.Acquired() {
		c.held = held{key: m.Key, token: got.Result, session: true}
	}
	return ok && got.Acquired()
}
