package real_test

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testwait"
	"lockproxy/lockcmd/keyname"
)

// What a LOCK and an UNLOCK for which nobody waits cost the upstream, and a LOCK that is refused.
func TestCommandsOfALockAndItsUnlock(t *testing.T) {
	server, p := proxytest.StartBoth(t)
	direct := proxytest.GoRedis(t, server.Addr())
	a, b := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	a.Lock("job 300")
	a.Expect("UNLOCK job", ":1\r\n")
	for _, step := range []struct {
		do   func()
		want int
	}{
		{func() { a.Lock("job 300") }, 5},                   // EVALSHA, MGET, TIME, SET, SET
		{func() { b.Expect("LOCK job 300", "$-1\r\n") }, 3}, // EVALSHA, MGET, TIME
		{func() { a.Expect("UNLOCK job", ":1\r\n") }, 5},    // EVALSHA, MGET, TIME, PTTL, DEL
	} {
		direct.ConfigResetStat(proxytest.Ctx)
		step.do()
		if got := commandCalls(t, direct); got != step.want {
			t.Errorf("%d commands, not %d", got, step.want)
		}
	}
}

// What a hand-over costs the upstream: within a proxy as much next to another proxy that waits as
// without, and one that moves to the other proxy.
func TestCommandsOfAHandOver(t *testing.T) {
	server, p := proxytest.StartBoth(t)
	other := proxytest.Start(t, server.URL(), nil)
	direct := proxytest.GoRedis(t, server.Addr())
	conns := make([]*proxytest.Conn, 5)
	for i, q := range []*proxytest.Proxy{p, p, p, p, other} {
		conns[i] = proxytest.Dial(t, q.Addr)
	}
	wait := func(i int, q *proxytest.Proxy, n int) {
		conns[i].Send("LOCK job 300 WAIT 0")
		proxytest.AwaitWaiters(t, q, "job", n)
	}
	// EVALSHA, MGET, TIME, PTTL, SET, SET; for the last PUBLISH as well, and then EVALSHA, MGET,
	// TIME, SET, SET.
	want := []int{6, 6, 6, 12}
	var least []int
	for range 20 { // the first waiters poll now and then
		conns[0].Lock("job 300")
		for i := 1; i <= 3; i++ {
			wait(i, p, i)
		}
		var counts []int
		for i := range 4 {
			direct.ConfigResetStat(proxytest.Ctx)
			conns[i].Expect("UNLOCK job", ":1\r\n")
			if got := conns[i+1].Reply(); got[0] != ':' {
				t.Fatalf("client %d in line was answered %q", i+1, got)
			}
			counts = append(counts, commandCalls(t, direct))
			if i == 0 {
				wait(4, other, 1)
				testwait.Until(t, "the other proxy is listed", func() bool {
					record := direct.Get(proxytest.Ctx, keyname.Record([]byte("job"))).Val()
					return !strings.Contains(record, " -\n")
				})
			}
		}
		conns[4].Expect("UNLOCK job", ":1\r\n")
		if least == nil {
			least = counts
		}
		for i := range least {
			least[i] = min(least[i], counts[i])
		}
		if slices.Equal(least, want) {
			return
		}
	}
	t.Errorf("the hand-overs took %d commands, want %d", least, want)
}

var callsOf = regexp.MustCompile(
	`cmdstat_(evalsha|eval|mget|time|set|exists|pttl|del|publish):calls=(\d+)`)

// commandCalls is how many of the commands that lock scripts use the server has run.
func commandCalls(t *testing.T, direct *redis.Client) (sum int) {
	for _, m := range callsOf.FindAllStringSubmatch(
		direct.Info(proxytest.Ctx, "commandstats").Val(), -1) {
		n, err := strconv.Atoi(m[2])
		if err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	return sum
}
