package real_test

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
)

// Four clients of one proxy and one of another take a lock in turns. The other proxy gets no
// release notifications, for a moment or forever. All get their turns; in which order is for
// TestTurnsWithoutNotifications.
func TestWaitersWithoutNotifications(t *testing.T) {
	t.Parallel()
	args := []string{"--user", "app", "on", ">pw", "~*", "+@all", "resetchannels"}
	// What is killed at one of these is also killed for the others there: they subscribe again.
	server, nodes := testredis.Start(t, args...), testredis.StartCluster(t, 3, 0, args...)
	alone := func(*testing.T) (string, []*testredis.Server) {
		return server.URL(), []*testredis.Server{server}
	}
	cluster := func(*testing.T) (string, []*testredis.Server) { return nodes.URL(), nodes.Nodes }
	sentinel := func(t *testing.T) (string, []*testredis.Server) {
		g := testredis.StartGroup(t, testredis.GroupOptions{Replicas: 1, Sentinels: 1,
			ServerArgs: args})
		return g.URL(), g.Servers[:1]
	}
	polls := startPolls(t)
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
			job := strings.ReplaceAll(name, " ", "-")
			as := func(user string) *proxytest.Proxy {
				return proxytest.Start(t, strings.Replace(url, "://", "://"+user, 1), nil)
			}
			proxies := [2]*proxytest.Proxy{as(c.four), as(c.other)}
			var turns [2]atomic.Int32 // by proxy
			var running sync.WaitGroup
			client := func(at int) {
				conn := proxytest.Dial(t, proxies[at].Addr)
				running.Go(func() { // ends when both proxies have had turns
					for !t.Failed() && (turns[0].Load() < 4 || turns[1].Load() < 2) {
						conn.Send("LOCK " + job + " 300 WAIT 0")
						if got, err := conn.TryReply(); err != nil || got[0] != ':' {
							t.Errorf("a client of proxy %d: %q, %v", at, got, err)
							return
						}
						turns[at].Add(1)
						polls.pass(1)
						conn.Expect("UNLOCK "+job, ":1\r\n")
					}
				})
			}
			holder := proxytest.Dial(t, proxies[0].Addr)
			holder.Lock(job + " 300")
			for range 4 {
				client(0)
			}
			proxytest.AwaitWaiters(t, proxies[0], job, 4)
			client(1)
			proxytest.AwaitWaiters(t, proxies[1], job, 1)
			if c.user == "" {
				for _, server := range servers {
					server.Ask("CLIENT", "KILL", "TYPE", "pubsub")
				}
			}
			holder.Expect("UNLOCK "+job, ":1\r\n")
			running.Wait()
		})
	}
}

// A proxy whose subscription ends while a client waits subscribes again.
func TestNotificationsComeAgain(t *testing.T) {
	t.Parallel()
	server, p := proxytest.StartBoth(t)
	holder, waiter := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	holder.Lock("job 600")
	waiter.Send("LOCK job 600 WAIT 0")
	subscribed := func() bool {
		return strings.Contains(server.Ask("PUBSUB", "CHANNELS", "lockproxy:wake:*"), "lockproxy:")
	}
	testwait.Until(t, "the proxy is subscribed", subscribed)
	for range 3 {
		server.Ask("CLIENT", "KILL", "TYPE", "pubsub")
		testwait.Until(t, "the proxy is subscribed again", subscribed)
	}
	holder.Expect("UNLOCK job", ":1\r\n")
	proxytest.Token(t, waiter.Reply())
}
