package real_test

import (
	"fmt"
	"strings"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/wire"
	"lockproxy/proxy"
)

// wantLost fails unless the client of a session lock is told soon that the lock is lost, and its
// connection closes.
func wantLost(t *testing.T, c *proxytest.Conn, proto, key string, token int64) {
	t.Helper()
	if proto == "3" {
		want := fmt.Sprintf(">3\r\n$8\r\nlocklost\r\n%s:%d\r\n", wire.Bulk(key), token)
		if got, err := c.TryReply(); got != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
	c.Closed()
}

// A lock whose name is longer than what the proxy reads of a change is not tracked, and keeps no
// other from being so.
func TestSessionLockDeletedNextToALongName(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := proxytest.Start(t, server.URL(), func(cfg *proxy.Config) { cfg.ClientBuffer = 4 << 20 })
	long, c := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	name := strings.Repeat("n", 2<<20)
	long.WriteRaw(string(wire.Append(nil, "LOCK", name, "300", "SESSION")))
	proxytest.Token(t, long.Reply())
	direct := proxytest.GoRedis(t, server.Addr())
	long.Lock("behind 300 SESSION")
	awaitTracking(t, direct, "1") // the long one would be tracked, too
	server.Ask("PEXPIRE", name, "300000")
	c.Do("HELLO 3")
	token := c.Lock("job 300 SESSION")
	awaitTracking(t, direct, "2")
	server.Ask("DEL", "job")
	wantLost(t, c, "3", "job", token)
}

func TestSessionLockForcedElsewhereInACluster(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, 3, 0)
	p, q := proxytest.Start(t, cluster.URL(), nil), proxytest.Start(t, cluster.URL(), nil)
	other := proxytest.Dial(t, q.Addr)
	var clients []*proxytest.Conn
	var tokens []int64
	for i := range 12 {
		c := proxytest.Dial(t, p.Addr)
		tokens = append(tokens, c.Lock(fmt.Sprintf("job-%d 600 SESSION", i)))
		clients = append(clients, c)
	}
	for i := range clients {
		node := cluster.MasterOf(cluster.Slot(fmt.Sprintf("job-%d", i)))
		testwait.Until(t, "the proxy listens there", func() bool {
			return strings.Contains(node.Ask("PUBSUB", "SHARDCHANNELS"), "lockproxy:wake:{")
		})
	}
	for i, c := range clients {
		other.Expect(fmt.Sprintf("UNLOCK job-%d FORCE", i), ":1\r\n")
		wantLost(t, c, "2", "", tokens[i])
	}
}

// When a token no longer holds its lock, all sessions of its owner are told, whichever learns it.
func TestSessionsOfOneOwnerLoseTogether(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"", " SHARED"} {
		server, p := proxytest.StartBoth(t)
		direct := proxytest.GoRedis(t, server.Addr())
		one, two := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
		token := one.Lock("job 300" + mode + " SESSION OWNER me")
		two.Lock("job 300" + mode + " SESSION OWNER me")
		awaitTracking(t, direct, "1")
		direct.Del(proxytest.Ctx, "job")
		wantLost(t, one, "2", "job", token)
		wantLost(t, two, "2", "job", token)
	}
}

// A lock that goes to another client of the proxy was lost by the one that had it.
func TestSessionLockTakenByAnother(t *testing.T) {
	t.Parallel()
	server, p := proxytest.StartBoth(t)
	direct := proxytest.GoRedis(t, server.Addr())
	setUntracked(direct)
	c := proxytest.Dial(t, p.Addr)
	token := c.Lock("job 300 SESSION")
	testwait.Until(t, "the proxy listens", func() bool {
		return strings.Contains(server.Ask("PUBSUB", "CHANNELS"), "lockproxy:wake:"+p.Server.ID())
	})
	direct.Del(proxytest.Ctx, "job")
	proxytest.Dial(t, p.Addr).Lock("job 300")
	wantLost(t, c, "2", "job", token)
}
