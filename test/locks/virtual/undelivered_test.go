//go:build !race

package virtual_test

import (
	"fmt"
	"testing"
	"time"

	"lockproxy/internal/test/badlink"
	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/virtualnet"
	"lockproxy/internal/test/virtualtest"
)

// A client closes before it has read its token, while a later command of its takes longer than a
// reset may take: the lock is released.
func TestUndeliveredTokenBeforeASlowCommand(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server := virtualtest.StartStore(t)
		link := proxytest.LinkTo(t, server)
		p, near := proxytest.Start(t, "redis://"+link.Addr(), nil),
			proxytest.Start(t, server.URL(), nil)
		next := proxytest.Dial(t, near.Addr)
		link.Set(badlink.State{Latency: 100 * time.Millisecond})
		for i, slow := range []string{"LOCK more 300 WAIT 300", "LOCKALL 300 2 more also",
			"LOCKSCAN 0", "FENCE more 1 GET x"} {
			c, name := proxytest.Dial(t, p.Addr), fmt.Sprintf("job:%d", i)
			c.WriteRaw("LOCK " + name + " 300\r\n" + slow + "\r\n")
			testwait.Until(t, "the token has come", c.Arrived)
			c.Close()
			began := time.Now()
			next.Lock(name + " 300 WAIT 300")
			if took := time.Since(began); took > 2*time.Second {
				t.Errorf("before %s: the lock was free after %v", slow, took)
			}
		}
	})
}

// A reset releases a lock if it comes within a moment of the token. Later it does not tell whether
// the token was read: a balancer sends one when a connection has long been silent.
func TestResetAfterAToken(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		_, p := virtualtest.StartBoth(t)
		next := proxytest.Dial(t, p.Addr)
		unread := func(c *proxytest.Conn) { c.Close() }
		reset := func(c *proxytest.Conn) {
			c.Conn.(*virtualnet.Conn).SetLinger(0)
			c.Close()
		}
		for _, after := range []time.Duration{50 * time.Millisecond, 150 * time.Millisecond} {
			for name, c := range map[string]struct {
				more []string
				read bool // the first reply
				end  func(c *proxytest.Conn)
			}{
				"read":    {nil, true, reset},
				"unread":  {nil, false, unread},
				"several": {[]string{"LOCKINFO job"}, true, reset},
			} {
				client := proxytest.Dial(t, p.Addr)
				// At once: what is sent after the token would say that it was read.
				client.Send(append([]string{"LOCK job 300"}, c.more...)...)
				if c.read {
					client.Reply()
				}
				testwait.Until(t, "all replies have come", func() bool {
					return c.read && c.more == nil || client.Arrived()
				})
				time.Sleep(after)
				c.end(client)
				testwait.Until(t, "the client is disconnected", func() bool {
					return p.Server.Stats().Clients == 1
				})
				want := byte('$')
				if after < 100*time.Millisecond {
					want = ':'
				}
				if got := next.Do("LOCK job 300"); got[0] != want {
					t.Errorf("%s, a reset after %v: %q", name, after, got)
				}
				next.Expect("UNLOCK job FORCE", ":1\r\n")
			}
		}
	})
}
