//go:build !race

package virtual_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/test/badlink"
	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/virtualtest"
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

// close ends all clients at once, and returns how long their locks took to be released. It fails if
// they are not soon after they should be.
func (far *farLocks) close(within time.Duration) (took time.Duration) {
	far.t.Helper()
	start := time.Now()
	for _, c := range far.clients {
		c.Close()
	}
	left := len(far.keys)
	for end := start.Add(within + 5*time.Second); left > 0 &&
		time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		left = far.held()
	}
	took = time.Since(start)
	far.t.Logf("%d session locks of %d clients: %d are left %v after the clients closed",
		len(far.keys), len(far.clients), left, took)
	if left > 0 {
		far.t.Error("want none to be left")
	}
	return took
}

// However far away Redis is, session locks are renewed in time and released at once, many in one
// round trip, even when Redis doesn't know the scripts.
func TestSessionLocksFarAway(t *testing.T) {
	for _, clients := range []int{10, 100} {
		virtualtest.Run(t, func(t *testing.T) {
			store := virtualtest.StartStore(t)
			link := proxytest.LinkTo(t, store)
			p := proxytest.Start(t, "redis://"+link.Addr(), nil)
			link.Set(badlink.State{Latency: 50 * time.Millisecond})
			direct := proxytest.GoRedis(t, store.Addr())
			far := lockFar(t, direct, p.Addr, "3", clients, 100/clients)
			far.heldFor(2 * time.Second)
			direct.ScriptFlush(proxytest.Ctx)
			far.heldFor(3 * time.Second)
			direct.ScriptFlush(proxytest.Ctx)
			// A few round trips of 100 ms: which locks go together depends on who closes first.
			if took := far.close(2 * time.Second); took > 2*time.Second {
				t.Error("want all to be released within a few round trips")
			}
		})
	}
}
