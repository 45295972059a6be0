//go:build linux

package client

import (
	"context"
	"math/rand/v2"
	"time"

	"lockproxy/internal/faults/history"
)

// Mortal is a waiter that wants a lock for much longer than anybody would wait for it to expire, and dies while it waits: its
// connection closes without its having read an answer. If ever it keeps the lock, others find no way in.
type Mortal struct {
	ID      int
	Targets []Target
	Key     string
	Random  *rand.Rand
	Notes   Noter
	Timeout time.Duration // of the lock that it never gets
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
		if _, err = c.Do(patience, "PING"); err == nil {
			m.Notes.Begin(history.Op{Client: m.ID, Kind: history.Lock, Key: m.Key, Proxy: at.Proxy, Timeout: m.Timeout.Nanoseconds(), Wait: true, HungUp: true})
			args := []string{"LOCK", m.Key, seconds(m.Timeout), "WAIT", "0"}
			if m.Random.IntN(3) == 0 {
				args = append(args, "SESSION")
			}
			c.Send(args...)
			pause(ctx, time.Duration(m.Random.Int64N(int64(400*time.Millisecond))))
		}
		if m.Random.IntN(2) == 0 {
			c.Close()
		} else {
			c.Reset()
		}
		pause(ctx, time.Duration(m.Random.Int64N(int64(50*time.Millisecond))))
	}
}
