//go:build faults

package faults_test

import (
	"strings"
	"testing"
	"time"

	"lockproxy/internal/faults/relay"
	"lockproxy/internal/proxytest"
	"lockproxy/internal/testredis"
	"lockproxy/proxy"
)

// startLinked starts two proxies of one Redis, the first through a link.
func startLinked(t *testing.T) (link *relay.Relay, linked, straight *proxytest.Proxy) {
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
	holder.Lock("job 30")
	queue := make([]*proxytest.Conn, 12)
	for i := range queue {
		queue[i] = proxytest.Dial(t, p.Addr)
		queue[i].Expect("PING", "+PONG\r\n")
		queue[i].Expect("PING", "+PONG\r\n") // by the shared connection
	}
	queue[0].Send("LOCK job 30 WAIT 20")
	proxytest.AwaitWaiters(t, p, "job", 1)
	link.Set(relay.Link{HoldDn: true})
	time.Sleep(500 * time.Millisecond) // the first has polled without a reply
	for _, c := range queue[1:] {
		c.Send("LOCK job 30 WAIT 20")
		time.Sleep(10 * time.Millisecond)
	}
	link.Set(relay.Link{})
	time.Sleep(300 * time.Millisecond)
	holder.Expect("UNLOCK job", ":1\r\n")
	for i, c := range queue {
		got, err := c.TryReply()
		if err != nil || got[0] != ':' {
			t.Fatalf("client %d of the queue is not served in order: %q, %v", i, got, err)
		}
		c.Expect("UNLOCK job", ":1\r\n")
	}
}

// A waiter whose predecessor's poll isn't answered is not told, at the end of its wait, that
// another client holds the lock: that is unknown.
func TestFaultSilenceIsNotAHeldLock(t *testing.T) {
	link, p, elsewhere := startLinked(t)
	proxytest.Dial(t, elsewhere.Addr).Lock("job 30")
	first, second, third := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr),
		proxytest.Dial(t, p.Addr)
	for _, c := range []*proxytest.Conn{first, second, third} {
		c.Expect("PING", "+PONG\r\n")
	}
	first.Send("LOCK job 30 WAIT 20")
	proxytest.AwaitWaiters(t, p, "job", 1)
	second.Send("LOCK job 30 WAIT 1.8")
	proxytest.AwaitWaiters(t, p, "job", 2, second)
	link.Set(relay.Link{HoldDn: true})
	time.Sleep(300 * time.Millisecond)
	third.Send("LOCK job 30 WAIT 1.5")
	for _, c := range []*proxytest.Conn{second, third} {
		if got := c.Reply(); !strings.HasPrefix(got, "-UPSTREAM has not answered for ") {
			t.Errorf("got %q", got)
		}
	}
}

// unlockedFirst frees a lock and takes another with one pipeline, after Redis has lost the scripts
// and other, which can or cannot SCRIPT LOAD, has made it know LOCK's again. It reports whether
// the commands ran in that order. name is what the names of the locks begin with.
func unlockedFirst(t *testing.T, p *proxytest.Proxy, server *testredis.Server,
	other *proxytest.Conn, name string) bool {
	a, b := name+"a", name+"b"
	admin, c := proxytest.Dial(t, server.Addr()), proxytest.SharedClient(t, p.Addr)
	token := c.Lock(a + " 30")
	admin.Expect("SCRIPT FLUSH", "+OK\r\n")
	other.Lock("x 30")
	monitor := proxytest.Dial(t, server.Addr())
	monitor.Expect("MONITOR", "+OK\r\n")
	c.Send(proxytest.Unlock(a, token), "LOCK "+b+" 30")
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
