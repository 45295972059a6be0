//go:build faults

package lockproxy_test

import (
	"strings"
	"testing"
	"time"

	"lockproxy/internal/faults/relay"
	"lockproxy/internal/testredis"
	"lockproxy/proxy"
)

// startLinked starts two proxies of one Redis, the first by way of a link.
func startLinked(t *testing.T) (link *relay.Relay, linked, straight *testProxy) {
	t.Helper()
	server := testredis.Start(t)
	link = linkTo(t, server)
	return link, startProxy(t, "redis://"+link.Addr(), nil), startProxy(t, server.URL(), nil)
}

// Clients that come while Redis doesn't answer stand in line in the order in which they came, though the connection that they share is
// taken for dead by then and a new one can't be opened before it answers again.
func TestPromisedOrderOfWhoComesWhileRedisIsSilent(t *testing.T) {
	link, p, elsewhere := startLinked(t)
	holder := dial(t, elsewhere.addr)
	holder.lock("job 30")
	line := make([]*rawConn, 12)
	for i := range line {
		line[i] = dial(t, p.addr)
		line[i].expect("PING", "+PONG\r\n")
		line[i].expect("PING", "+PONG\r\n") // by the shared connection
	}
	line[0].send("LOCK job 30 WAIT 20")
	attackWaits(t, p, "job", 1)
	link.Set(relay.Link{HoldDn: true})
	time.Sleep(500 * time.Millisecond) // the first has looked and has had no answer
	for _, c := range line[1:] {
		c.send("LOCK job 30 WAIT 20")
		time.Sleep(10 * time.Millisecond)
	}
	link.Set(relay.Link{})
	time.Sleep(300 * time.Millisecond)
	holder.expect("UNLOCK job", ":1\r\n")
	for i, c := range line {
		got, err := c.tryReply(2 * time.Second)
		if err != nil || got[0] != ':' {
			t.Fatalf("client %d of the line is not served in its turn: %q, %v", i, got, err)
		}
		c.expect("UNLOCK job", ":1\r\n")
	}
}

// Who waits behind one whose look isn't answered is not told that the lock is held by another when its time is over: nobody knows.
func TestFaultSilenceIsNotAnothersLock(t *testing.T) {
	link, p, elsewhere := startLinked(t)
	dial(t, elsewhere.addr).lock("job 30")
	first, second, third := dial(t, p.addr), dial(t, p.addr), dial(t, p.addr)
	for _, c := range []*rawConn{first, second, third} {
		c.expect("PING", "+PONG\r\n")
	}
	first.send("LOCK job 30 WAIT 20")
	attackWaits(t, p, "job", 1)
	second.send("LOCK job 30 WAIT 1.8")
	attackWaits(t, p, "job", 2)
	link.Set(relay.Link{HoldDn: true})
	time.Sleep(300 * time.Millisecond)
	third.send("LOCK job 30 WAIT 1.5")
	for _, c := range []*rawConn{second, third} {
		if got := c.reply(); !strings.HasPrefix(got, "-UPSTREAM has not answered for ") {
			t.Errorf("got %q", got)
		}
	}
}

// unlockedFirst has a client free a lock and take another by commands that it sends together, after
// Redis has lost the scripts and other, who may or may not SCRIPT LOAD, has made it know LOCK's again.
// It reports whether the commands ran in that order.
func unlockedFirst(t *testing.T, p *testProxy, server *testredis.Server, other *rawConn) bool {
	admin, c := dial(t, server.Addr()), trusted(t, p.addr)
	token := c.lock("a 30")
	admin.expect("SCRIPT FLUSH", "+OK\r\n")
	other.lock("x 30")
	monitor := dial(t, server.Addr())
	monitor.expect("MONITOR", "+OK\r\n")
	c.send(unlock("a", token), "LOCK b 30")
	if got := c.reply(); got != ":1\r\n" {
		t.Fatal(got)
	}
	attackToken(t, c.reply())
	for {
		line := monitor.reply()
		if strings.Contains(line, `lua] "DEL" "a"`) {
			return true
		}
		if strings.Contains(line, `lua] "SET" "b"`) {
			return false
		}
	}
}

// Commands that a client sends together run in their order, also just after SCRIPT FLUSH.
func TestFaultOrderBehindScriptFlush(t *testing.T) {
	for _, dedicated := range []bool{false, true} {
		server := testredis.Start(t)
		p := startProxy(t, server.URL(), func(cfg *proxy.Config) { cfg.Dedicated = dedicated })
		if !unlockedFirst(t, p, server, trusted(t, p.addr)) {
			t.Errorf("dedicated %v: the second lock was taken before the first was freed", dedicated)
		}
	}
}

// But not if somebody has made Redis know one of the two scripts alone: here a user who may not SCRIPT LOAD.
func TestNotPromisedOrderBehindScriptFlush(t *testing.T) {
	server := testredis.Start(t)
	p := startProxy(t, server.URL(), nil)
	dial(t, server.Addr()).expect("ACL SETUSER ann on >pw ~* &* +@all -script", "+OK\r\n")
	other := dial(t, p.addr)
	other.expect("AUTH ann pw", "+OK\r\n")
	if unlockedFirst(t, p, server, other) {
		t.Error("the first lock was freed before the second was taken: the promise was kept")
	}
}
