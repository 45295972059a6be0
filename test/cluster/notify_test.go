package cluster_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
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
			wanted := map[string]int{"sharded": 7, "old": 1} // channels
			holder := proxytest.Dial(t, proxytest.Start(t, node.URL(), cluster).Addr)
			other := proxytest.Start(t, node.URL(), cluster)
			waiter := proxytest.Dial(t, other.Addr)
			published := map[string]string{"sharded": "spublish", "old": "publish"}[name]
			for i, key := range []string{"job", "job", "{tag}job", "a{}b", "}{", "job2", "job3",
				"job4"} {
				token := holder.Lock(key + " 600")
				waiter.Send("LOCK " + key + " 600 WAIT 600")
				proxytest.AwaitWaiters(t, other, key, 1)
				testwait.Until(t, "it has subscribed", func() bool {
					return len(wakeChannels(node, published)) >= min(max(i, 1), wanted[name])
				})
				wake(t, node, published, holder, waiter, key, token)
			}
			if channels := wakeChannels(node, published); len(channels) != wanted[name] {
				t.Errorf("channels: %q", channels)
			}
		})
	}
}

// wakeChannels are those that waiters listen to, and not those by which proxies tell who waits.
func wakeChannels(node *testredis.Server, command string) (channels []string) {
	kind := map[string]string{"spublish": "SHARDCHANNELS", "publish": "CHANNELS"}[command]
	for _, line := range strings.Split(node.Ask("PUBSUB", kind), "\r\n") {
		if strings.HasPrefix(line, "lockproxy:wake:") && !strings.HasSuffix(line, "waits") {
			channels = append(channels, line)
		}
	}
	return channels
}

// wake has a lock released, which its node must publish on a channel that someone listens to, and
// the waiter have it and release it, too. That a waiter looks as soon as it hears of a release is a
// matter of test/locks/virtual.
func wake(t *testing.T, node *testredis.Server, command string, holder, waiter *proxytest.Conn,
	key string, token int64) {
	t.Helper()
	heard := wakeChannels(node, command)
	monitor := proxytest.Dial(t, node.Addr())
	defer monitor.Close()
	monitor.Expect("MONITOR", "+OK\r\n")
	holder.Expect(proxytest.Unlock(key, token), ":1\r\n")
	got := proxytest.Token(t, waiter.Reply())
	waiter.Expect(proxytest.Unlock(key, got), ":1\r\n")
	for {
		line := monitor.Reply() // time, client, command and arguments
		words := strings.Split(line, `"`)
		if len(words) < 4 || !strings.EqualFold(words[1], command) {
			continue
		}
		channel := words[3]
		if !slices.Contains(heard, channel) {
			t.Errorf("the release of %s is published on %q, the waiter listens to %q", key, channel,
				heard)
		}
		return
	}
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
	for i := range 5 {
		key := fmt.Sprint("job", i)
		token := holder.Lock(key + " 600")
		waiter.Send("LOCK " + key + " 600 WAIT 600")
		proxytest.AwaitWaiters(t, other, key, 1)
		holder.Expect(proxytest.Unlock(key, token), ":1\r\n")
		proxytest.Token(t, waiter.Reply())
	}
}

// Proxies whose user may not use the channels by which they tell each other who waits find a deadlock
// as soon as the user may.
func TestClusterWaitsWithTheRightLater(t *testing.T) {
	t.Parallel()
	node := testredis.StartCluster(t, 1, 0, "--user", "app", "on", ">pw", "~*", "+@all",
		"resetchannels", "&lockproxy:wake:{*}:*").Nodes[0]
	url := strings.Replace(node.URL(), "://", "://app:pw@", 1)
	var proxies []*proxytest.Proxy
	var owners []*proxytest.Conn
	for i := range 2 {
		p := proxytest.Start(t, url, func(cfg *proxy.Config) { cfg.Locks.Cluster = true })
		proxies, owners = append(proxies, p), append(owners, proxytest.Dial(t, p.Addr))
		owners[i].Lock(fmt.Sprintf("k%d 600 OWNER o%d", i, i))
	}
	for i, c := range owners { // the last one to wait is told
		key := fmt.Sprintf("k%d", 1-i)
		c.Send(fmt.Sprintf("LOCK %s 600 OWNER o%d WAIT 0", key, i))
		proxytest.AwaitWaiters(t, proxies[i], key, 1)
	}
	asked := func() int { return strings.Count(node.Ask("ACL", "LOG"), "}waits") }
	testwait.Until(t, "they are refused", func() bool { return asked() >= 3 })
	if got := node.Ask("ACL", "SETUSER", "app", "&lockproxy:wake:*"); got != "+OK" {
		t.Fatal(got)
	}
	if got := owners[1].Reply(); !strings.HasPrefix(got, "-DEADLOCK ") {
		t.Errorf("%q", got)
	}
}
