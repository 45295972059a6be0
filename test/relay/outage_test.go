package relay_test

import (
	"strings"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
)

// When Redis is gone, every waiter is told so, and none is told that another client holds the lock:
// at once, or at the end of the wait where another server can take its place.
func TestWaitersAreToldThatRedisIsGone(t *testing.T) {
	t.Parallel()
	const n = 30
	for name, moves := range map[string]bool{"one Redis": false, "one that can be replaced": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testredis.Start(t)
			url, wait := server.URL(), "0"
			if moves {
				url = "redis+sentinel://" + testredis.StartSentinel(t, server.Addr()).Addr() +
					"/mymaster"
				wait = "20" // they are told when it ends
			}
			p := proxytest.Start(t, url, nil)
			proxytest.Dial(t, p.Addr).Lock("job 600")
			line := make([]*proxytest.Conn, n)
			for i := range line {
				line[i] = proxytest.SharedClient(t, p.Addr)
			}
			for _, c := range line {
				c.Send("LOCK job 600 WAIT " + wait)
			}
			proxytest.AwaitWaiters(t, p, "job", n)
			server.Kill()
			var null []int
			for i, c := range line {
				if got := c.Reply(); got == "$-1\r\n" {
					null = append(null, i)
				} else if !strings.HasPrefix(got, "-UPSTREAM ") {
					t.Errorf("told %q", got)
				}
			}
			if null != nil {
				t.Errorf("waiters %v were told that another client holds the lock", null)
			}
		})
	}
}
