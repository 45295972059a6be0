package locks_test

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lockproxy/internal/proxytest"
	"lockproxy/internal/testredis"
	"lockproxy/internal/testwait"
)

// awaitListens waits until a proxy is told of releases.
func awaitListens(t *testing.T, server *testredis.Server, p *proxytest.Proxy) {
	t.Helper()
	testwait.Until(t, "the proxy listens for releases", func() bool {
		return strings.Contains(server.Ask("PUBSUB", "CHANNELS"), "lockproxy:wake:"+p.Server.ID())
	})
}

// A proxy that is 100 ms or 500 ms (one way) from Redis gets at least half of its fair share of a
// lock next to a near one: a released lock is kept for it until it can ask.
func TestShareOfAFarProxy(t *testing.T) {
	t.Parallel()
	for _, way := range []time.Duration{100 * time.Millisecond, 500 * time.Millisecond} {
		t.Run(way.String(), func(t *testing.T) {
			t.Parallel()
			server := testredis.Start(t)
			link := testredis.StartFarLink(t, server.Addr(), 2*way)
			proxies := []*proxytest.Proxy{proxytest.Start(t, server.URL(), nil),
				proxytest.Start(t, "redis://"+link.Addr(), nil)}
			const enough = 24 // grants
			var grants [2]atomic.Int64
			done := func() bool { return grants[0].Load()+grants[1].Load() >= enough }
			holder := proxytest.Dial(t, proxies[0].Addr)
			held := holder.Lock("job 600")
			var clients sync.WaitGroup
			for i, p := range proxies {
				for range 4 {
					c := proxytest.Dial(t, p.Addr)
					c.Expect("PING", "+PONG\r\n")
					clients.Go(func() { // ends with the grants
						for !done() {
							c.Send("LOCK job 600 WAIT 0")
							token := c.Reply()
							grants[i].Add(1)
							c.Send("UNLOCK job")
							if got := c.Reply(); token[0] != ':' || got != ":1\r\n" {
								t.Errorf("LOCK: %q, UNLOCK: %q", token, got)
								return
							}
						}
					})
				}
			}
			awaitPlaces(t, holder, "job", 5) // four near, and the far proxy
			for _, p := range proxies {      // one that does not listen yet would lose its first turn
				awaitListens(t, server, p)
			}
			holder.Expect(proxytest.Unlock("job", held), ":1\r\n")
			clients.Wait()
			near, far := grants[0].Load(), grants[1].Load()
			t.Logf("%d grants near, %d far", near, far)
			if far < enough/4 {
				t.Errorf("the far proxy has %d grants of %d", far, near+far)
			}
		})
	}
}
