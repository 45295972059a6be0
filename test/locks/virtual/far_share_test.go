//go:build !race

package virtual_test

import (
	"sync"
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/virtualtest"
)

// A proxy that is 100 ms or 500 ms (one way) from Redis gets at least half of its fair share of a
// lock next to a near one: a released lock is kept for it until it can ask.
func TestShareOfAFarProxy(t *testing.T) {
	for _, way := range []time.Duration{100 * time.Millisecond, 500 * time.Millisecond} {
		virtualtest.Run(t, func(t *testing.T) {
			store := virtualtest.StartStore(t)
			link := proxytest.LinkTo(t, store)
			link.Away(way)
			proxies := []*proxytest.Proxy{proxytest.Start(t, store.URL(), nil),
				proxytest.Start(t, "redis://"+link.Addr(), nil)}
			const enough = 240 // grants
			var mu sync.Mutex
			var grants [2]int // by proxy
			granted := func(to int) (all int) {
				mu.Lock()
				defer mu.Unlock()
				if to >= 0 {
					grants[to]++
				}
				return grants[0] + grants[1]
			}
			holder := proxytest.Dial(t, proxies[0].Addr)
			held := holder.Lock("job 600")
			var clients sync.WaitGroup
			for i, p := range proxies {
				for range 4 {
					c := proxytest.Dial(t, p.Addr)
					c.Expect("PING", "+PONG\r\n")
					clients.Go(func() { // ends with the grants
						for granted(-1) < enough {
							c.Send("LOCK job 600 WAIT 0")
							token := c.Reply()
							granted(i)
							c.Send("UNLOCK job")
							if got := c.Reply(); token[0] != ':' || got != ":1\r\n" {
								t.Errorf("LOCK: %q, UNLOCK: %q", token, got)
								return
							}
						}
					})
				}
			}
			time.Sleep(10 * time.Second) // all wait, and both proxies listen for releases
			holder.Expect(proxytest.Unlock("job", held), ":1\r\n")
			clients.Wait()
			t.Logf("%v: %d grants near, %d far", way, grants[0], grants[1])
			if far := grants[1]; far < enough/4 {
				t.Errorf("%v: the far proxy has %d grants of %d", way, far, grants[0]+far)
			}
		})
	}
}
