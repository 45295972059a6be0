package locks_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"lockproxy/internal/proxytest"
	"lockproxy/internal/testredis"
)

// Four clients of one proxy and one of another take a lock in turns. The other proxy gets no
// release notifications, for a moment or forever. Its client waits no longer than for the four, and
// the four no longer than for it.
func TestWaitersWithoutNotifications(t *testing.T) {
	t.Parallel()
	const (
		hold = 250 * time.Millisecond
		ends = 6 * time.Second
		// The four, the one that has it, and two for a poll interval.
		longest = 7
	)
	args := []string{"--user", "app", "on", ">pw", "~*", "+@all", "resetchannels"}
	alone := func(t *testing.T) (string, []*testredis.Server) {
		server := testredis.Start(t, args...)
		return server.URL(), []*testredis.Server{server}
	}
	cluster := func(t *testing.T) (string, []*testredis.Server) {
		c := testredis.StartCluster(t, 3, 0, args...)
		return c.URL(), c.Nodes
	}
	sentinel := func(t *testing.T) (string, []*testredis.Server) {
		g := testredis.StartGroup(t, testredis.GroupOptions{Replicas: 1, Sentinels: 1,
			ServerArgs: args, SentinelLines: []string{"sentinel down-after-milliseconds " +
				"mymaster 60000"}})
		return g.URL(), g.Servers[:1]
	}
	for name, c := range map[string]struct {
		start             func(t *testing.T) (url string, servers []*testredis.Server)
		four, other, user string
	}{
		"its connection is killed":      {start: alone},
		"no right to the channels":      {alone, "app:pw@", "app:pw@", "resetchannels"},
		"no right to subscribe":         {alone, "", "app:pw@", "resetchannels"},
		"no right to publish":           {alone, "app:pw@", "", "resetchannels"},
		"those to a cluster are killed": {start: cluster},
		"no right to a cluster's channels": {cluster, "app:pw@", "app:pw@",
			"resetchannels"},
		"one behind Sentinels is killed": {start: sentinel},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, servers := c.start(t)
			as := func(user string) *proxytest.Proxy {
				return proxytest.Start(t, strings.Replace(url, "://", "://"+user, 1), nil)
			}
			proxies := [2]*proxytest.Proxy{as(c.four), as(c.other)}
			began := time.Now()
			var (
				grants int
				mu     sync.Mutex
				waits  [2]int // the most grants to others during a wait, by proxy
				counts [2]int
				streak int // consecutive grants to the other proxy's client
				most   int
			)
			var running sync.WaitGroup
			for i := range 5 {
				at := i / 4
				conn := proxytest.Dial(t, proxies[at].Addr)
				running.Go(func() {
					if at == 1 {
						time.Sleep(100 * time.Millisecond) // the four wait already
					}
					for time.Since(began) < ends {
						mu.Lock()
						before := grants
						mu.Unlock()
						conn.Send("LOCK job 30 WAIT 60")
						got, err := conn.TryReply()
						if err != nil || got[0] != ':' {
							t.Errorf("client %d: %q, %v", i, got, err)
							return
						}
						mu.Lock()
						waits[at] = max(waits[at], grants-before)
						grants++
						counts[at]++
						if streak = streak + 1; at == 0 {
							streak = 0
						}
						most = max(most, streak)
						mu.Unlock()
						time.Sleep(hold)
						conn.Expect("UNLOCK job", ":1\r\n")
					}
				})
			}
			if c.user == "" {
				time.Sleep(180 * time.Millisecond)
				for _, server := range servers {
					server.Ask("CLIENT", "KILL", "TYPE", "pubsub")
				}
			}
			running.Wait()
			t.Logf(
				"the four: %d times, at most behind %d; the other: %d times, at most behind %d, %d "+
					"in a row",
				counts[0], waits[0], counts[1], waits[1], most)
			for at, wait := range waits {
				if wait > longest {
					t.Errorf("proxy %d: %d others came before a client that waited", at, wait)
				}
			}
			if most > 3 {
				t.Errorf("the other client had the lock %d times in a row while four waited", most)
			}
		})
	}
}
