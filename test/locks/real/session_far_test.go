//go:build faults

package real_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testwait"
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

// renewed waits until each lock ends later than now by at least that much. It fails if one is lost
// before, or a connection is closed.
func (far *farLocks) renewed(by time.Duration) {
	far.t.Helper()
	ends := map[string]time.Duration{}
	for _, key := range far.keys {
		ends[key] = far.direct.PExpireTime(proxytest.Ctx, key).Val()
	}
	for _, key := range far.keys {
		testwait.Until(far.t, key+" is renewed", func() bool {
			end, err := far.direct.PExpireTime(proxytest.Ctx, key).Result()
			if err != nil || end < 0 {
				far.t.Fatalf("%s is lost: %v, %v", key, end, err)
			}
			return end >= ends[key]+by
		})
	}
	if n := far.held(); n < len(far.keys) {
		far.t.Fatalf("%d of %d session locks are lost", len(far.keys)-n, len(far.keys))
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
