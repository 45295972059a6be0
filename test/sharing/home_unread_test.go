package sharing_test

import (
	"strings"
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/proxy"
)

// A client that leaves its replies unread gets a new home nevertheless: its requests run, as they
// do without the proxy. With TLS the proxy would have read a part of the last reply.
func TestHomeIsDialledAgainForAClientThatDoesNotRead(t *testing.T) {
	server := testredis.StartBy(t, testredis.TCP)
	p := proxytest.Start(t, server.URL(), func(cfg *proxy.Config) {
		cfg.Dedicated, cfg.HomeIdle = true, 100*time.Millisecond
	})
	admin := proxytest.Dial(t, server.Addr())
	admin.Expect("SET big "+strings.Repeat("x", 60000), "+OK\r\n")
	c := proxytest.Dial(t, p.Addr)
	const each = len("$60000\r\n\r\n") + 60000
	for asked := 0; p.Server.Stats().BytesOut == uint64(asked*each); asked++ {
		if asked > 2000 {
			t.Fatal("the client's connection takes all")
		}
		c.Send("GET big")
		looks, sent := 0, uint64(0)
		testwait.Until(t, "the client takes it, or no more", func() bool {
			if now := p.Server.Stats().BytesOut; now != sent {
				looks, sent = 0, now
			}
			looks++
			return sent >= uint64((asked+1)*each) || looks == 50
		})
	}
	testwait.Until(t, "the client's home is closed", func() bool {
		return len(clientList(admin)) == 0
	})
	c.Send("SET ran 1")
	testwait.Until(t, "the client's request runs", func() bool {
		return admin.Do("EXISTS ran") == ":1\r\n"
	})
}
