package lockproxy_test

import (
	"fmt"
	"testing"
	"time"

	"lockproxy/internal/testredis"
	"lockproxy/proxy"
)

// reserved starts a proxy with so few connections in reserve, and clients who have logged in as ann.
func reserved(t *testing.T, reserve, clients int) (*testProxy, *rawConn, []*rawConn) {
	server := testredis.Start(t)
	p := startProxy(t, server.URL(), func(cfg *proxy.Config) { cfg.Dedicated, cfg.UpstreamReserve = false, reserve })
	admin := dial(t, server.Addr())
	admin.expect("ACL SETUSER ann on >old ~* &* +@all", "+OK\r\n")
	var all []*rawConn
	for range clients {
		c := dial(t, p.addr)
		c.expect("AUTH ann old", "+OK\r\n")
		c.expect("PING", "+PONG\r\n")
		all = append(all, c)
	}
	killSpares(admin, "ann")
	return p, admin, all
}

// As many as have ever needed connections of their own at once are served after the password has been changed, and a reserve more.
func TestReserveGrowsWithNeed(t *testing.T) {
	const reserve, clients, busy = 1, 20, 8
	p, admin, all := reserved(t, reserve, clients)
	for _, c := range all[:busy] {
		c.expect("SUBSCRIBE c", "*3…")
	}
	for _, c := range all[:busy] {
		c.expect("UNSUBSCRIBE c", "*3…")
		c.expect("GET a", "$-1\r\n")
	}
	killIdle(admin, "ann", "unsubscribe") // what they had is gone: only what the proxy does about that helps
	killIdle(admin, "ann", "auth")
	eventually(t, 10*time.Second, "the reserve is filled", func() bool { return p.server.Stats().Connections.Spares >= reserve+busy })
	time.Sleep(50 * time.Millisecond)
	admin.expect("ACL SETUSER ann resetpass >new", "+OK\r\n")
	for i, c := range all[:reserve+busy] {
		start := time.Now()
		c.expect("SUBSCRIBE c", "*3…")
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("client %d waited %v", i, took)
		}
	}
	for _, c := range all[reserve+busy:] {
		c.expect("GET a", "$-1\r\n")
	}
}

// The connections of those who leave are there for those who stay.
func TestReserveOfThoseWhoLeave(t *testing.T) {
	const reserve, clients = 2, 12
	p, admin, all := reserved(t, reserve, clients)
	eventually(t, 10*time.Second, "the reserve is filled", func() bool { return p.server.Stats().Connections.Spares >= reserve })
	time.Sleep(50 * time.Millisecond)
	admin.expect("ACL SETUSER ann resetpass >new", "+OK\r\n")
	for i, c := range all[:clients-1] {
		state := []string{"SUBSCRIBE c", "MULTI", "WATCH a", "PSUBSCRIBE a* b*", "SSUBSCRIBE s", "CLIENT REPLY OFF"}[i%6]
		c.expect("SELECT 3", "+OK\r\n")
		if state == "CLIENT REPLY OFF" {
			c.send(state, "SUBSCRIBE x", "MULTI")
			c.reply()
		} else if got := c.do(state); got[0] == '-' {
			t.Fatalf("client %d, %s: %q", i, state, got)
		}
		c.Close()
		time.Sleep(10 * time.Millisecond)
	}
	last := all[clients-1]
	for range 3 {
		last.expect("MULTI", "+OK\r\n")
		last.expect("ECHO a", "+QUEUED\r\n")
		last.expect("EXEC", "*1\r\n$1\r\na\r\n")
		last.expect("SUBSCRIBE d", "*3\r\n$9\r\nsubscribe\r\n$1\r\nd\r\n:1\r\n")
		last.expect("UNSUBSCRIBE", "*3\r\n$11\r\nunsubscribe\r\n$1\r\nd\r\n:0\r\n")
	}
	admin.expect("PUBSUB NUMSUB c x", "*4\r\n$1\r\nc\r\n:0\r\n$1\r\nx\r\n:0\r\n")
	admin.expect("PUBSUB NUMPAT", ":0\r\n")
}

// Who hangs up in line for a connection is out of the line, and gone.
func TestHangUpInLineForAConnection(t *testing.T) {
	p, admin, all := reserved(t, 1, 4)
	eventually(t, 10*time.Second, "the reserve is filled", func() bool { return p.server.Stats().Connections.Spares >= 1 })
	time.Sleep(50 * time.Millisecond)
	admin.expect("ACL SETUSER ann resetpass >new", "+OK\r\n")
	all[0].expect("SUBSCRIBE c", "*3…")
	start := time.Now()
	for _, c := range all[1:3] {
		c.send("MULTI", "SET a b", "EXEC")
		time.Sleep(20 * time.Millisecond)
		c.Close()
	}
	eventually(t, 4*time.Second, "they are gone", func() bool { return p.server.Stats().Clients == 2 })
	if took := time.Since(start); took > 3*time.Second {
		t.Errorf("it took %v until they were gone", took)
	}
	all[3].send("MULTI", "PING", "EXEC")
	fmt.Fprintf(all[0], "UNSUBSCRIBE c\r\n")
	all[0].reply()
	for _, want := range []string{"+OK\r\n", "+QUEUED\r\n", "*1\r\n+PONG\r\n"} {
		if got := all[3].reply(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	all[0].expect("EXISTS a", ":0\r\n")
}
