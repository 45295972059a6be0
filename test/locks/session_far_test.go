//go:build faults

package locks_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/proxytest"
	"lockproxy/internal/testwait"
)

// farLocks is session locks of a proxy whose Redis is far away.
type farLocks struct {
	t       testing.TB
	direct  *redis.Client // of Redis, without the distance
	keys    []string
	clients []*proxytest.Conn
}

// lockFar makes each of some clients take as many session locks.
func lockFar(t testing.TB, direct *redis.Client, addr, timeout string, clients,
	each int) *farLocks {
	t.Helper()
	far := &farLocks{t: t, direct: direct}
	var taking sync.WaitGroup
	for i := range clients {
		c := proxytest.Dial(t, addr)
		var commands []string
		for j := range each {
			key := fmt.Sprintf("far-%d-%d", i, j)
			far.keys = append(far.keys, key)
			commands = append(commands, "LOCK "+key+" "+timeout+" SESSION")
		}
		far.clients = append(far.clients, c)
		taking.Go(func() {
			c.Send(commands...)
			for _, command := range commands {
				if got, err := c.TryReply(); err != nil || got[0] != ':' {
					t.Errorf("%s: %q, %v", command, got, err)
					return
				}
			}
		})
	}
	taking.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return far
}

// held is how many of the locks Redis has.
func (far *farLocks) held() (n int) {
	far.t.Helper()
	for keys := far.keys; len(keys) > 0; keys = keys[min(len(keys), 500):] {
		got, err := far.direct.Exists(proxytest.Ctx, keys[:min(len(keys), 500)]...).Result()
		if err != nil {
			far.t.Fatal(err)
		}
		n += int(got)
	}
	return n
}

// heldFor fails unless all locks are held for that long, and no connection is closed.
func (far *farLocks) heldFor(d time.Duration) {
	far.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if n := far.held(); n < len(far.keys) {
			far.t.Fatalf("%d of %d session locks are lost", len(far.keys)-n, len(far.keys))
		}
	}
	for _, c := range far.clients {
		c.Send("PING")
	}
	for i, c := range far.clients {
		if got, err := c.TryReply(); got != "+PONG\r\n" {
			far.t.Errorf("client %d: %q, %v", i, got, err)
		}
	}
}

// close ends all clients at once, and waits until their locks are released.
func (far *farLocks) close() {
	far.t.Helper()
	for _, c := range far.clients {
		c.Close()
	}
	testwait.Until(far.t, "the locks are released", func() bool { return far.held() == 0 })
}
