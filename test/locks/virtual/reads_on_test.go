//go:build !race

package virtual_test

import (
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/virtualtest"
	"lockproxy/proxy"
)

// A session that no loop reads also asks for a lock while it waits for the answer about another: the
// threads of its client may share the connection.
func TestLocksAreAskedWhileOthersAre(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		link := proxytest.LinkTo(t, virtualtest.StartStore(t))
		p := proxytest.Start(t, "redis://"+link.Addr(), nil)
		c := proxytest.Dial(t, p.Addr)
		c.Expect(proxytest.Unlock("k", c.Lock("k 300")), ":1\r\n") // Redis has the scripts
		const away = time.Second
		link.Away(away)
		for _, command := range []string{"LOCK a 300", "LOCK b 300"} {
			c.Send(command)
			time.Sleep(away / 10)
		}
		proxytest.Token(t, c.Reply())
		first := time.Now()
		proxytest.Token(t, c.Reply())
		if took := time.Since(first); took >= away {
			t.Errorf("the second is given %v after the first", took)
		}
	})
}

// A SET that is delayed in a session that no loop reads is answered as soon as its client
// sends more.
func TestDelayEndsWhenMoreComes(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server := virtualtest.StartStore(t)
		p := proxytest.Start(t, server.URL(), func(cfg *proxy.Config) {
			cfg.Park, cfg.ParkKeys = time.Hour, "*"
		})
		holder, c := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
		holder.Expect("SET job v NX PX 36000000", "+OK\r\n")
		c.Send("SET job w NX PX 36000000")
		time.Sleep(time.Minute)
		if c.Arrived() {
			t.Fatal("the SET is not delayed")
		}
		began := time.Now()
		c.Send("ECHO x")
		c.WantReply("$-1\r\n")
		c.WantReply("$1\r\nx\r\n")
		if took := time.Since(began); took > time.Second {
			t.Errorf("it is answered after %v", took)
		}
	})
}
