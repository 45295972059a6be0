//go:build !race

package virtualtest_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockproxy/internal/test/badlink"
	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/virtualtest"
)

// A lease, a renewal and a wait end when they should, to the millisecond.
func TestTimePasses(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		store, p := virtualtest.StartBoth(t)
		holder, waiter := proxytest.SharedClient(t, p.Addr), proxytest.Dial(t, p.Addr)
		session := proxytest.Dial(t, p.Addr)
		session.Lock("renewed 10 SESSION")
		holder.Lock("k 100")
		waiter.Send("LOCK k 10 WAIT 600")
		proxytest.AwaitWaiters(t, p, "k", 1)
		began := time.Now()
		proxytest.Token(t, waiter.Reply())
		if took := time.Since(began); took < 99*time.Second || took > 101*time.Second {
			t.Errorf("it waited for %v", took)
		}
		time.Sleep(10 * time.Minute)
		if held := store.Ask("EXISTS", "k", "renewed"); held != ":1" {
			t.Errorf("of both locks EXISTS says %s", held)
		}
		session.Close()
		testwait.Until(t, "it is released", func() bool {
			return store.Ask("EXISTS", "renewed") == ":0"
		})
	})
}

// Bytes on a link take their time, or wait, and a store that ends comes back with its keys.
func TestFaults(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		store := virtualtest.StartStore(t)
		link := proxytest.LinkTo(t, store)
		p := proxytest.Start(t, "redis://"+link.Addr(), nil)
		c := proxytest.Dial(t, p.Addr)
		c.Expect("SET k v", "+OK\r\n")
		link.Set(badlink.State{Latency: time.Second})
		began := time.Now()
		c.Expect("GET k", "$1\r\nv\r\n")
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("a round trip took %v", took)
		}
		link.Set(badlink.State{HoldDn: true})
		began = time.Now()
		time.AfterFunc(time.Minute, func() { link.Set(badlink.State{}) })
		c.Expect("GET k", "$1\r\nv\r\n")
		if took := time.Since(began); took != time.Minute {
			t.Errorf("what was held took %v", took)
		}
		store.Pause()
		time.AfterFunc(time.Minute, store.Resume)
		began = time.Now()
		c.Expect("GET k", "$1\r\nv\r\n")
		if took := time.Since(began); took != time.Minute {
			t.Errorf("what was asked of a paused store took %v", took)
		}
		c.Send("BLPOP empty 0")
		synctest.Wait()
		link.Reset()
		if got, _ := c.TryReply(); got != "" && !strings.HasPrefix(got, "-UPSTREAM") {
			t.Errorf("got %q when the link was cut", got)
		}
		store.Restart()
		proxytest.Dial(t, p.Addr).Expect("GET k", "$1\r\nv\r\n")
	})
}
