package lockproxy_test

import (
	"fmt"
	"testing"
	"time"

	"lockproxy/internal/testredis"
)

// lasting is the servers that several tests use.
var lasting testredis.Lasting

// wantReply fails unless the next reply is want.
func (c *rawConn) wantReply(want string) {
	c.t.Helper()
	if got := c.reply(); got != want {
		c.t.Errorf("got %q, want %q", got, want)
	}
}

// sixNodes is a cluster of three masters with a replica each, for tests that leave it as it was but for its keys.
func sixNodes(t testing.TB) *testredis.Cluster {
	return lasting.Cluster(t, 3, 1, "--cluster-node-timeout", "5000")
}

// A plain client sees one Redis.
func TestClusterAsOneRedis(t *testing.T) {
	p := startProxy(t, sixNodes(t).URL(), nil)
	c := dial(t, p.addr)
	c.expect("FLUSHALL", "+OK\r\n")
	for i := range 100 {
		c.send(fmt.Sprintf("SET k:%d %d", i, i), fmt.Sprintf("GET k:%d", i))
	}
	for i := range 100 {
		c.wantReply("+OK\r\n")
		c.wantReply(fmt.Sprintf("$%d\r\n%d\r\n", len(fmt.Sprint(i)), i))
	}
	c.expect("DBSIZE", ":100\r\n")
	c.expect("MGET k:1 k:2 k:3", "*3\r\n$1\r\n1\r\n$1\r\n2\r\n$1\r\n3\r\n")
	c.send("MULTI", "SET {t}a 1", "INCR {t}a", "EXEC")
	for _, want := range []string{"+OK\r\n", "+QUEUED\r\n", "+QUEUED\r\n", "*2\r\n+OK\r\n:2\r\n"} {
		c.wantReply(want)
	}
	token := c.lock("job 30")
	c.expect("LOCK job 30", "$-1\r\n")
	c.expect(unlock("job", token), ":1\r\n")
}

// What blocks at a node is given up when its client goes.
func TestClusterBlockedClientGoes(t *testing.T) {
	p := startProxy(t, sixNodes(t).URL(), nil)
	blocked := dial(t, p.addr)
	blocked.send("BLPOP goes:list 0")
	c := dial(t, p.addr)
	time.Sleep(50 * time.Millisecond)
	c.expect("LPUSH goes:list a", ":1\r\n")
	blocked.wantReply("*2\r\n$9\r\ngoes:list\r\n$1\r\na\r\n")
	blocked.send("BLPOP goes:list 0")
	time.Sleep(50 * time.Millisecond)
	blocked.Close()
	eventually(t, 5*time.Second, "the blocked client is given up", func() bool {
		c.send("LPUSH goes:list b")
		c.reply()
		time.Sleep(20 * time.Millisecond)
		return c.do("LPOP goes:list") == "$1\r\nb\r\n"
	})
}
