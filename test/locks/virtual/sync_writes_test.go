//go:build !race

package virtual_test

import (
	"slices"
	"testing"

	"github.com/alicebob/miniredis/v2/server"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/virtualtest"
	"lockproxy/proxy"
)

// Redis 7.2 counts for WAIT what its own connection has written. A client that shares others is
// told which right its user lacks for that, and not that no replica has its writes.
func TestWaitWithoutTheRightToPublish(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		store := virtualtest.StartStore(t)
		store.Answer(func(client *server.Peer, args []string) {
			proto := 2
			if client.Resp3 = slices.Contains(args, "3"); client.Resp3 {
				proto = 3
			}
			client.WriteMapLen(3)
			client.WriteBulk("server")
			client.WriteBulk("redis")
			client.WriteBulk("version")
			client.WriteBulk("7.2.0")
			client.WriteBulk("proto")
			client.WriteInt(proto)
		}, "HELLO")
		store.Answer(func(client *server.Peer, _ []string) { client.WriteInt(0) }, "WAIT")
		store.Refuse("NOPERM this user has no permissions to run the command", "PUBLISH")
		p := proxytest.Start(t, store.URL(), func(c *proxy.Config) { c.Dedicated = false })
		c := proxytest.Dial(t, p.Addr)
		c.Expect("SET k v", "+OK\r\n")
		c.Expect("WAIT 0 0", "-NOPERM lockproxy would have to PUBLISH…")
		store.Answer(nil, "PUBLISH")
		c.Expect("SET k v", "+OK\r\n")
		c.Expect("WAIT 0 0", ":0\r\n")
	})
}
