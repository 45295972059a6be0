package relay_test

import (
	"strings"
	"testing"
	"time"

	"lockproxy/internal/proxytest"
	"lockproxy/internal/testredis"
)

// When Redis is gone, every waiter is told so, and none is told that another client holds the lock:
// at once, or at the end of the wait where another server can take its place.
func TestWaitersAreToldThatRedisIsGone(t *testing.T) {
	t.Parallel()
	const wait, n = 6 * time.Second, 30
	for name, moves := range map[string]bool{"one Redis": false, "one that can be replaced": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testredis.Start(t)
			busy := proxytest.WatchBusy(t, testredis.Start(t).Addr())
			url := server.URL()
			if moves {
				url = "redis+sentinel://" + testredis.StartSentinel(t, server.Addr()).Addr() +
					"/mymaster"
			}
			p := proxytest.Start(t, url, nil)
			proxytest.Dial(t, p.Addr).Lock("job 60")
			line := make([]*proxytest.Conn, n)
			for i := range line {
				line[i] = proxytest.SharedClient(t, p.Addr)
			}
			sent := time.Now() // to all at once: connecting can take seconds on a busy machine
			for _, c := range line {
				c.Send("LOCK job 30 WAIT 6")
			}
			proxytest.AwaitWaiters(t, p, "job", n)
			joined := time.Now()
			time.Sleep(300 * time.Millisecond)
			server.Kill()
			killed := time.Now()
			if killed.Sub(sent) > wait-time.Second {
				t.Fatalf("Redis was killed %v after the first LOCK: its wait may have been over",
					killed.Sub(sent))
			}
			var null []int
			last := time.Duration(0)
			for i, c := range line {
				got, err := c.TryReply()
				if got == "$-1\r\n" {
					null = append(null, i)
				} else if err != nil || !strings.HasPrefix(got, "-UPSTREAM ") {
					t.Errorf("told %q, %v", got, err)
				}
				last = time.Since(killed)
			}
			t.Logf("Redis was killed %v after the first LOCK; the last was told %v later",
				killed.Sub(sent), last)
			if null != nil {
				t.Errorf("waiters %v were told that another holds the lock", null)
			}
			if took := time.Since(joined); moves && took < wait-500*time.Millisecond {
				t.Errorf("they were told after %v, before their time was over", took)
			}
			if !moves && last > time.Second+10*busy.Longest() {
				t.Errorf("the last was told %v after Redis died", last)
			}
		})
	}
}
