//go:build !race

package virtual_test

import (
	"fmt"
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/virtualtest"
)

// A client that closes while the upstream is silent leaves no lock behind, and a shutdown does not
// wait for it.
func TestLockIsAskedWhenTheClientCloses(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		for _, shutdown := range []bool{false, true} {
			server, p := virtualtest.StartBoth(t)
			const clients = 20
			warm := proxytest.Dial(t, p.Addr)
			warm.Expect(proxytest.Unlock("k", warm.Lock("k 30")), ":1\r\n")
			var conns []*proxytest.Conn
			for range clients {
				c := proxytest.Dial(t, p.Addr)
				c.Expect("PING", "+PONG\r\n")
				conns = append(conns, c)
			}
			server.Pause()
			for i, c := range conns {
				c.Send(fmt.Sprint("LOCK k", i, " 30"))
			}
			time.Sleep(50 * time.Millisecond)
			if shutdown {
				wait := proxytest.Shutdown(proxytest.Ctx, t, p)
				time.Sleep(100 * time.Millisecond)
				server.Resume()
				for i, c := range conns {
					if got := c.Reply(); !tokenReply.MatchString(got) {
						t.Errorf("LOCK %d: %q", i, got)
					}
					c.Close()
				}
				if err := wait(); err != nil {
					t.Error(err)
				}
				continue
			}
			for _, c := range conns {
				c.Close()
			}
			time.Sleep(400 * time.Millisecond)
			server.Resume()
			testwait.Until(t, "the locks are free", func() bool {
				for i := range clients {
					if warm.Do(fmt.Sprint("EXISTS k", i)) != ":0\r\n" {
						return false
					}
				}
				return true
			})
		}
	})
}
