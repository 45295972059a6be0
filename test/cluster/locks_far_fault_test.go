//go:build faults

package cluster_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testwait"
)

// Locks of servers that are 100 ms away: each command works, a release reaches the waiter of
// another proxy, and session locks are released when their connection closes, although the servers
// don't know the scripts. test/locks/virtual has the times.
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
				token := a.Lock(key + " 300")
				a.Expect(fmt.Sprintf("RELOCK %s %d 300", key, token), ":1\r\n")
				a.Expect(fmt.Sprintf("FENCE %s %d SET %s:x 1", key, token, key), "+OK\r\n")
				b.Send("LOCK " + key + " 300 WAIT 0")
				proxytest.AwaitWaiters(t, q, key, 1)
				a.Expect(proxytest.Unlock(key, token), ":1\r\n")
				b.Expect(proxytest.Unlock(key, proxytest.Token(t, b.Reply())), ":1\r\n")
				a.Expect(fmt.Sprintf("FENCE %s %d SET %s:x 2", key, token, key), "-FENCED …")
				got := a.Do(fmt.Sprintf("LOCKALL 300 2 %s:1 %s:2 WAIT 0", key, key))
				b.Expect("LOCK "+key+":2 300", "$-1\r\n")
				a.Expect(fmt.Sprintf("UNLOCKALL %d 2 %s:1 %s:2", proxytest.Token(t, got), key, key),
					":2\r\n")
			}

			const sessions = 60
			holder := proxytest.Dial(t, p.Addr)
			var commands []string
			for i := range sessions {
				commands = append(commands, fmt.Sprintf("LOCK far%02d 300 SESSION", i))
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
			for _, s := range up.servers { // a release brings them back
				s.Ask("SCRIPT", "FLUSH")
			}
			if n := held(); n != sessions {
				t.Fatalf("%d of %d session locks are held", n, sessions)
			}
			holder.Expect("PING", "+PONG\r\n")
			holder.Close()
			testwait.Until(t, "all are released",
				func() bool { return held() == 0 })
		})
	}
}
