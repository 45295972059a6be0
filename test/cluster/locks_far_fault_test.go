//go:build faults

package cluster_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/proxytest"
	"lockproxy/internal/testwait"
)

// Locks of servers that are 100 ms away: each command works, a release reaches the waiter of
// another proxy at once, and session locks are renewed in time and released at once.
func TestLocksOfServersFarAway(t *testing.T) {
	t.Parallel()
	for name, up := range startBothKinds(t, 100*time.Millisecond) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, q := proxytest.Start(t, up.url, nil), proxytest.Start(t, up.url, nil)
			a, b := proxytest.Dial(t, p.Addr), proxytest.Dial(t, q.Addr)
			for _, s := range up.servers { // which all know the scripts then
				key := up.tag
				if up.cluster != nil {
					key = "{" + tagOf(t, up.cluster, s) + "}"
				}
				token := a.Lock(key + " 30")
				a.Expect(fmt.Sprintf("RELOCK %s %d 30", key, token), ":1\r\n")
				a.Expect(fmt.Sprintf("FENCE %s %d SET %s:x 1", key, token, key), "+OK\r\n")
				b.Send("LOCK " + key + " 30 WAIT 10")
				proxytest.AwaitWaiters(t, q, key, 1)
				time.Sleep(500 * time.Millisecond) // it subscribes
				if took := wakeTime(t, a, b, key, token); took > time.Second+proxytest.Late() {
					t.Errorf("%s: the next client had the lock after %v", key, took)
				}
				a.Expect(fmt.Sprintf("FENCE %s %d SET %s:x 2", key, token, key), "-FENCED …")
				got := a.Do(fmt.Sprintf("LOCKALL 30 2 %s:1 %s:2 WAIT 5", key, key))
				b.Expect("LOCK "+key+":2 30", "$-1\r\n")
				a.Expect(fmt.Sprintf("UNLOCKALL %d 2 %s:1 %s:2", proxytest.Token(t, got), key, key),
					":2\r\n")
			}

			const sessions = 60
			holder := proxytest.Dial(t, p.Addr)
			var commands []string
			for i := range sessions {
				commands = append(commands, fmt.Sprintf("LOCK far%02d 2 SESSION", i))
			}
			holder.Send(commands...)
			for range sessions {
				proxytest.Token(t, holder.Reply())
			}
			held := func() (n int) {
				for _, s := range up.servers {
					n += strings.Count(s.Ask("KEYS", "far??"), "far")
				}
				return n
			}
			for range 2 {
				time.Sleep(1500 * time.Millisecond)
				if n := held(); n != sessions {
					t.Fatalf("%d of %d session locks are held", n, sessions)
				}
				for _, s := range up.servers {
					s.Ask("SCRIPT", "FLUSH")
				}
			}
			holder.Expect("PING", "+PONG\r\n")
			holder.Close()
			testwait.Until(t, "all are released",
				func() bool { return held() == 0 })
		})
	}
}

// wakeTime releases a lock and returns how long it took until the waiter had it. The waiter
// releases it too.
func wakeTime(t *testing.T, holder, waiter *proxytest.Conn, key string, token int64) time.Duration {
	t.Helper()
	began := time.Now()
	holder.Expect(proxytest.Unlock(key, token), ":1\r\n")
	got := proxytest.Token(t, waiter.Reply())
	took := time.Since(began)
	waiter.Expect(proxytest.Unlock(key, got), ":1\r\n")
	return took
}
