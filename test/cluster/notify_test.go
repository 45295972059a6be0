package cluster_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/proxytest"
	"lockproxy/internal/testredis"
	"lockproxy/proxy"
)

// A release notifies the waiter of another proxy at once: by the channel of the lock's slot,
// whatever slot that is, or by the channel that reaches every node where nodes know no sharded
// channels.
func TestClusterWakes(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"sharded": nil,
		"old":     {"--rename-command", "SPUBLISH", "", "--rename-command", "SSUBSCRIBE", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node := testredis.StartCluster(t, 1, 0, args...).Nodes[0]
			cluster := func(cfg *proxy.Config) { cfg.Locks.Cluster = true }
			holder := proxytest.Dial(t, proxytest.Start(t, node.URL(), cluster).Addr)
			other := proxytest.Start(t, node.URL(), cluster)
			waiter := proxytest.Dial(t, other.Addr)
			for i, key := range []string{"job", "job", "{tag}job", "a{}b", "}{", "job2", "job3",
				"job4"} {
				token := holder.Lock(key + " 600")
				waiter.Send("LOCK " + key + " 600 WAIT 600")
				proxytest.AwaitWaiters(t, other, key, 1)
				// its subscription arrives, and it looks only every 210 ms
				time.Sleep(150 * time.Millisecond)
				took := wakeTime(t, holder, waiter, key, token)
				if took > 100*time.Millisecond+proxytest.Late() {
					t.Errorf("%d: the waiter for %s had the lock %v after its release", i, key,
						took)
				}
			}
			channels := node.Ask("PUBSUB", "SHARDCHANNELS")
			// one for each key, and not those by which proxies ask who waits
			if sharded := strings.Count(channels,
				"}:"); sharded != map[string]int{"sharded": 7, "old": 0}[name] {
				t.Errorf("%d sharded channels:\n%s", sharded, channels)
			}
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

// A user who may not use the channels locks and waits all the same.
func TestClusterWakesWithoutTheRight(t *testing.T) {
	t.Parallel()
	node := testredis.StartCluster(t, 1, 0, "--user", "app", "on", ">pw", "~*", "+@all",
		"resetchannels").Nodes[0]
	cluster := func(cfg *proxy.Config) { cfg.Locks.Cluster = true }
	url := strings.Replace(node.URL(), "://", "://app:pw@", 1)
	other := proxytest.Start(t, url, cluster)
	holder, waiter := proxytest.Dial(t, proxytest.Start(t, url, cluster).Addr),
		proxytest.Dial(t, other.Addr)
	var times []time.Duration
	for i := range 5 {
		key := fmt.Sprint("job", i)
		token := holder.Lock(key + " 600")
		waiter.Send("LOCK " + key + " 600 WAIT 600")
		proxytest.AwaitWaiters(t, other, key, 1)
		times = append(times, wakeTime(t, holder, waiter, key, token))
	}
	if slowest := slices.Max(times); slowest > 600*time.Millisecond+proxytest.Late() {
		t.Errorf("woken after %v", times)
	}
}
