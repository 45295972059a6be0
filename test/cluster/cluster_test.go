package cluster_test

import (
	"fmt"
	"strings"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testwait"
)

// A plain client sees one Redis.
func TestClusterAsOneRedis(t *testing.T) {
	p := proxytest.Start(t, proxytest.SixNodes(t).URL(), nil)
	c := proxytest.Dial(t, p.Addr)
	c.Expect("FLUSHALL", "+OK\r\n")
	for i := range 100 {
		c.Send(fmt.Sprintf("SET k:%d %d", i, i), fmt.Sprintf("GET k:%d", i))
	}
	for i := range 100 {
		c.WantReply("+OK\r\n")
		c.WantReply(fmt.Sprintf("$%d\r\n%d\r\n", len(fmt.Sprint(i)), i))
	}
	c.Expect("DBSIZE", ":100\r\n")
	c.Expect("MGET k:1 k:2 k:3", "*3\r\n$1\r\n1\r\n$1\r\n2\r\n$1\r\n3\r\n")
	c.Send("MULTI", "SET {t}a 1", "INCR {t}a", "EXEC")
	for _, want := range []string{"+OK\r\n", "+QUEUED\r\n", "+QUEUED\r\n", "*2\r\n+OK\r\n:2\r\n"} {
		c.WantReply(want)
	}
	token := c.Lock("job 600")
	c.Expect("LOCK job 600", "$-1\r\n")
	c.Expect(proxytest.Unlock("job", token), ":1\r\n")
}

// What blocks at a node is given up when its client goes.
func TestClusterBlockedClientGoes(t *testing.T) {
	p := proxytest.Start(t, proxytest.SixNodes(t).URL(), nil)
	blocked := proxytest.Dial(t, p.Addr)
	blocked.Send("BLPOP goes:list 0")
	c := proxytest.Dial(t, p.Addr)
	c.Expect("LPUSH goes:list a", ":1\r\n")
	blocked.WantReply("*2\r\n$9\r\ngoes:list\r\n$1\r\na\r\n")
	blocked.Send("BLPOP goes:list 0")
	list := func() string {
		cluster := proxytest.SixNodes(t)
		return cluster.MasterOf(cluster.Slot("goes:list")).Ask("CLIENT", "LIST")
	}
	testwait.Until(t, "it blocks", func() bool { return strings.Contains(list(), " cmd=blpop ") })
	blocked.Close()
	testwait.Until(t, "the blocked client is given up", func() bool {
		c.Send("LPUSH goes:list b")
		c.Reply()
		return c.Do("LPOP goes:list") == "$1\r\nb\r\n"
	})
}
