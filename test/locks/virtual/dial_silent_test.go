package virtual_test

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/virtualnet"
	"lockproxy/internal/test/virtualtest"
	"lockproxy/proxy"
)

// A client whose request needs a connection to an upstream that accepts none is answered once
// --upstream-dial-timeout has passed, and not after a second dial: whether it is new, had a
// connection of its own or shared one, and for a LOCK whose wait is over by then.
func TestOneDialTimeoutForARequest(t *testing.T) {
	const bound = 5 * time.Second
	for _, before := range []string{"new", "shares", "own", "told before"} {
		for _, request := range []string{
			"GET k", "MULTI", "SUBSCRIBE x", "LOCK a 60", "LOCK a 60 WAIT 3", "LOCKALL 60 1 a WAIT 3",
			"ONCE a 60 WAIT 3", "UNLOCK a 1", "FENCE a 1 GET k",
		} {
			virtualtest.Run(t, func(t *testing.T) {
				store := virtualtest.StartStore(t)
				var silent atomic.Bool
				over := make(chan struct{})
				p := proxytest.Start(t, store.URL(), func(cfg *proxy.Config) {
					cfg.DialTimeout, cfg.HomeIdle = bound, 10*time.Second
					cfg.Upstream.Dialer = func(
						ctx context.Context, network, addr string,
					) (net.Conn, error) {
						if silent.Load() {
							select {
							case <-ctx.Done():
							case <-over:
							}
							return nil, context.DeadlineExceeded
						}
						return virtualnet.Dial(ctx, network, addr)
					}
				})
				t.Cleanup(func() { close(over) })
				c := proxytest.Dial(t, p.Addr)
				c.Expect("SET k v", "+OK\r\n")
				if before == "own" {
					c.Expect("MULTI", "+OK\r\n")
					c.Expect("EXEC", "*0\r\n")
				}
				silent.Store(true)
				store.Kill()
				switch before {
				case "new":
					time.Sleep(time.Minute)
					c = proxytest.Dial(t, p.Addr)
				case "told before":
					c.Expect("GET k", "-UPSTREAM …")
				}
				asked := time.Now()
				got := c.Do(request)
				took := time.Since(asked)
				if !strings.HasPrefix(got, "-UPSTREAM ") || took > bound+bound/4 {
					t.Errorf("%s, of a client that is %q: %q after %v", request, before, got, took)
				}
			})
		}
	}
}

// A client that was answered by the failure to connect it is served as soon as the upstream is back.
func TestFailureToConnectIsForgotten(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		store, p := virtualtest.StartBoth(t)
		store.Kill()
		time.Sleep(time.Minute)
		c := proxytest.Dial(t, p.Addr)
		c.Expect("GET k", "-UPSTREAM …")
		late := proxytest.Dial(t, p.Addr)
		time.Sleep(time.Minute)
		store.Restart()
		c.Expect("GET k", "$-1\r\n")
		late.Expect("GET k", "$-1\r\n")
	})
}
