package lockproxy_test

import (
	"strings"
	"testing"
	"time"

	"lockproxy/internal/testredis"
	"lockproxy/proxy"
)

// A client that leaves its replies unread is given a home again all the same: what it asks runs, as
// it does without the proxy.
func TestHomeIsDialledAgainForAClientThatDoesNotRead(t *testing.T) {
	server := testredis.Start(t)
	p := startProxy(t, server.URL(), func(cfg *proxy.Config) {
		cfg.Dedicated, cfg.HomeIdle = false, 100*time.Millisecond
	})
	admin := dial(t, server.Addr())
	admin.expect("SET big "+strings.Repeat("x", 60000), "+OK\r\n")
	c := dial(t, p.addr)
	const each = len("$60000\r\n\r\n") + 60000
	for asked := 0; p.server.Stats().BytesOut == uint64(asked*each); asked++ {
		if asked > 2000 {
			t.Fatal("the client's connection takes all")
		}
		c.send("GET big")
		given := time.Now().Add(20 * time.Millisecond)
		for time.Now().Before(given) && p.server.Stats().BytesOut < uint64((asked+1)*each) {
			time.Sleep(time.Millisecond)
		}
	}
	eventually(t, 5*time.Second, "its home is closed", func() bool { return len(clientList(admin)) == 0 })
	c.send("SET ran 1")
	eventually(t, 5*time.Second, "what it asks runs", func() bool { return admin.do("EXISTS ran") == ":1\r\n" })
}
