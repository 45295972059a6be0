//go:build faults

package faults_test

import (
	"strings"
	"testing"
	"time"

	"lockproxy/internal/names"
	"lockproxy/internal/test/badlink"
	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/proxy"
)

// startLinked starts two proxies of one Redis, the first through a link.
func startLinked(t *testing.T) (link *badlink.Link, linked, straight *proxytest.Proxy) {
	t.Helper()
	server := testredis.Start(t)
	link = proxytest.LinkTo(t, server)
	return link, proxytest.Start(t, "redis://"+link.Addr(), nil), proxytest.Start(t, server.URL(),
		nil)
}

// Clients that come while Redis doesn't answer queue in order of arrival, although their shared
// connection is taken for dead by then and a new one can't be opened before Redis answers again.
func TestPromisedOrderOfArrivalsWhileRedisIsSilent(t *testing.T) {
	link, p, elsewhere := startLinked(t)
	holder := proxytest.Dial(t, elsewhere.Addr)
	holder.Lock("job 600")
	queue := make([]*proxytest.Conn, 12)
	for i := range queue {
		queue[i] = proxytest.Dial(t, p.Addr)
		queue[i].Expect("PING", "+PONG\r\n")
		queue[i].Expect("PING", "+PONG\r\n") // by the shared connection
	}
	for i, c := range queue {
		c.Send("LOCK job 600 WAIT 0")
		testwait.Until(t, "it waits", func() bool {
			return len(p.Server.Locks().Waiters(names.Lock{Key: "job"}, len(queue))) == i+1
		})
		if i == 0 {
			silent(t, link)
			// the shared connection is taken for dead after 100 ms, or a few answers' time
			outlast(t, 300*time.Millisecond)
		}
	}
	link.Set(badlink.State{})
	proxytest.AwaitWaiters(t, p, "job", len(queue))
	holder.Expect("UNLOCK job", ":1\r\n")
	for i, c := range queue {
		got, err := c.TryReply()
		if err != nil || got[0] != ':' {
			t.Fatalf("client %d of the queue is not served in order: %q, %v", i, got, err)
		}
		c.Expect("UNLOCK job", ":1\r\n")
	}
}

// silent keeps Redis's answers from a proxy, and returns when one is held: a waiter's poll, since
// the proxy asks for nothing else so often.
func silent(t *testing.T, link *badlink.Link) {
	t.Helper()
	link.HoldReplies()
	testwait.Until(t, "a poll is unanswered", link.Holding)
}

// A waiter whose predecessor's poll isn't answered is not told, at the end of its wait, that
// another client holds the lock: that is unknown.
func TestFaultSilenceIsNotAHeldLock(t *testing.T) {
	link, p, elsewhere := startLinked(t)
	proxytest.Dial(t, elsewhere.Addr).Lock("job 600")
	first, second, third := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr),
		proxytest.Dial(t, p.Addr)
	for _, c := range []*proxytest.Conn{first, second, third} {
		c.Expect("PING", "+PONG\r\n")
	}
	first.Send("LOCK job 600 WAIT 0")
	proxytest.AwaitWaiters(t, p, "job", 1)
	unknown := func(c *proxytest.Conn) {
		t.Helper()
		if got := c.Reply(); !strings.HasPrefix(got, "-UPSTREAM has not answered for ") {
			t.Errorf("got %q", got)
		}
	}
	for {
		second.Send("LOCK job 600 WAIT 4")
		proxytest.AwaitWaiters(t, p, "job", 2, second)
		silent(t, link)
		third.Send("LOCK job 600 WAIT 1.5")
		unknown(third)
		if !second.Arrived() {
			break
		}
		// The machine has stopped, and this wait has ended before the silence was long enough.
		second.Reply()
		link.Set(badlink.State{})
	}
	unknown(second)
	link.Set(badlink.State{}) // or the proxies' ends wait for Redis
}

// unlockedFirst frees a lock and takes another with one pipeline, after Redis has lost the scripts
// and other, which can or cannot SCRIPT LOAD, has made it know LOCK's again. It reports whether
// the commands ran in that order. name is what the names of the locks begin with.
func unlockedFirst(t *testing.T, p *proxytest.Proxy, server *testredis.Server,
	other *proxytest.Conn, name string) bool {
	a, b := name+"a", name+"b"
	admin, c := proxytest.Dial(t, server.Addr()), proxytest.SharedClient(t, p.Addr)
	token := c.Lock(a + " 600")
	admin.Expect("SCRIPT FLUSH", "+OK\r\n")
	other.Lock("x 600")
	monitor := proxytest.Dial(t, server.Addr())
	monitor.Expect("MONITOR", "+OK\r\n")
	c.Send(proxytest.Unlock(a, token), "LOCK "+b+" 600")
	if got := c.Reply(); got != ":1\r\n" {
		t.Fatal(got)
	}
	proxytest.Token(t, c.Reply())
	for {
		line := monitor.Reply()
		if strings.Contains(line, `lua] "DEL" "`+a+`"`) {
			return true
		}
		if strings.Contains(line, `lua] "SET" "`+b+`"`) {
			return false
		}
	}
}

// Commands that a client sends together run in order, even just after SCRIPT FLUSH.
func TestFaultOrderAfterScriptFlush(t *testing.T) {
	for _, dedicated := range []bool{false, true} {
		for _, name := range []string{"", tooLongForABatch} {
			server := testredis.Start(t)
			p := proxytest.Start(t, server.URL(),
				func(cfg *proxy.Config) { cfg.Dedicated = dedicated })
			if !unlockedFirst(t, p, server, proxytest.SharedClient(t, p.Addr), name) {
				t.Errorf("dedicated %v, names of %d bytes: the second lock was taken before the "+
					"first was freed", dedicated, len(name)+1)
			}
		}
	}
}

// tooLongForABatch begins the names of locks whose commands do not go together.
var tooLongForABatch = strings.Repeat("long", 5000)

// That fails if Redis has got to know only one of the two scripts, here from a user who may not
// SCRIPT LOAD, and the commands do not go together.
func TestNotPromisedOrderAfterScriptFlush(t *testing.T) {
	server := testredis.Start(t)
	p := proxytest.Start(t, server.URL(), nil)
	proxytest.Dial(t, server.Addr()).Expect("ACL SETUSER ann on >pw ~* &* +@all -script", "+OK\r\n")
	other := proxytest.Dial(t, p.Addr)
	other.Expect("AUTH ann pw", "+OK\r\n")
	if unlockedFirst(t, p, server, other, tooLongForABatch) {
		t.Error("the first lock was freed before the second was taken: the promise was kept")
	}
}
