package proxytest

import (
	"lockproxy/internal/resp"
	"lockproxy/internal/testredis"
	"testing"
)

// DoWords sends one command whose words may be any bytes, and returns its raw reply.
func (c *Conn) DoWords(words ...string) string {
	c.T.Helper()
	c.WriteRaw(string(resp.AppendCommand(nil, words...)))
	return c.Reply()
}

func AnotherMaster(c *testredis.Cluster, but *testredis.Server) *testredis.Server {
	for _, s := range c.Nodes {
		if s != but && s.Role() == "master" {
			return s
		}
	}
	return nil
}

// Lasting is the servers that several tests use.
var Lasting testredis.Lasting

// WantReply fails unless the next reply is want.
func (c *Conn) WantReply(want string) {
	c.T.Helper()
	if got := c.Reply(); got != want {
		c.T.Errorf("got %q, want %q", got, want)
	}
}

// SixNodes is a cluster of three masters with a replica each, for tests that leave it as it was but for its keys.
func SixNodes(t testing.TB) *testredis.Cluster {
	return Lasting.Cluster(t, 3, 1, "--cluster-node-timeout", "5000")
}
