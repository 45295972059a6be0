package cluster_test

import (
	"fmt"
	"strings"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
)

// Twenty users wait at one proxy for locks in as many slots. The proxy listens for all of them, and
// each lock's release through another proxy reaches it. Session locks of as many are tracked.
func TestClusterManyLogins(t *testing.T) {
	t.Parallel()
	const users = 20
	var args []string
	for i := range users {
		args = append(args, "--user", fmt.Sprint("u", i), "on", ">pw", "~*", "&*", "+@all")
	}
	cluster := testredis.StartCluster(t, 3, 0, args...)
	p, other := proxytest.Start(t, cluster.URL(), nil), proxytest.Start(t, cluster.URL(), nil)
	holder := proxytest.Dial(t, other.Addr)
	var waiters []*proxytest.Conn
	key := func(i int) string { return fmt.Sprint("job", i) }
	for i := range users {
		holder.Lock(key(i) + " 600")
		c := proxytest.Dial(t, p.Addr)
		c.Expect(fmt.Sprintf("AUTH u%d pw", i), "+OK\r\n")
		c.Send("LOCK " + key(i) + " 3600 SESSION WAIT 0")
		proxytest.AwaitWaiters(t, p, key(i), 1)
		waiters = append(waiters, c)
	}
	listens := func(i int) bool {
		node := cluster.MasterOf(cluster.Slot(key(i)))
		for channel := range strings.SplitSeq(node.Ask("PUBSUB", "SHARDCHANNELS"), "\r\n") {
			if strings.HasSuffix(channel, ":"+p.Server.ID()) &&
				cluster.Slot(channel) == cluster.Slot(key(i)) {
				return true
			}
		}
		return false
	}
	for i, c := range waiters {
		testwait.Until(t, "the proxy listens for "+key(i), func() bool { return listens(i) })
		holder.Expect("UNLOCK "+key(i), ":1\r\n")
		proxytest.Token(t, c.Reply())
	}
	for i, c := range waiters {
		node := cluster.MasterOf(cluster.Slot(key(i)))
		testwait.Until(t, "its key is tracked and deleted", func() bool {
			if tracked(node) == "0" {
				return false
			}
			node.Ask("DEL", key(i))
			return true
		})
		c.Closed()
	}
}
