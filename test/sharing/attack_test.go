package sharing_test

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testhostile"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
)

// The proxy's own request comes after a request that ends the need for a home.
func TestLaneOwnRequestsAfterStateChanges(t *testing.T) {
	p := sharing(t, testredis.Start(t), 1)
	for _, first := range []struct{ send, want string }{
		{"SELECT 0", "+OK\r\n"}, {"CLIENT SETNAME x", "+OK\r\n"}, {"UNWATCH", "+OK\r\n"},
	} {
		for _, second := range []struct{ send, want string }{
			{"COMMAND COUNT", ":"}, {"INFO lockproxy", "$"}, {"LOCK a 600 OWNER me", ":"},
			{"COMMAND INFO get", "*"},
		} {
			c := proxytest.SharedClient(t, p.Addr)
			for range 5 {
				c.Send(first.send, second.send, "PING")
				if got := c.Reply(); got != first.want {
					t.Fatalf("%s: %q", first.send, got)
				}
				if got := c.Reply(); !strings.HasPrefix(got, second.want) {
					t.Fatalf("%s: %q", second.send, got)
				}
				if got := c.Reply(); got != "+PONG\r\n" {
					t.Fatalf("PING: %q", got)
				}
			}
			c.Close()
		}
	}
}

// A blocking stream reader must not block a lane, whatever its group's name.
func TestLaneIsNotBlockedByReaders(t *testing.T) {
	p := sharing(t, testredis.Start(t), 1)
	c, other := proxytest.SharedClient(t, p.Addr), proxytest.SharedClient(t, p.Addr)
	c.Expect("XGROUP CREATE s streams $ MKSTREAM", "+OK\r\n")
	c.Send("XREADGROUP GROUP streams me BLOCK 0 STREAMS s >")
	awaitBlocked(t, other)
	other.Expect("XADD s 1-1 a b", "$3\r\n1-1\r\n")
	if got := c.Reply(); !strings.Contains(got, "1-1") {
		t.Errorf("XREADGROUP: %q", got)
	}
}

// awaitBlocked returns when a client is blocked, as direct is told.
func awaitBlocked(t *testing.T, direct *proxytest.Conn) {
	t.Helper()
	testwait.Until(t, "a client is blocked", func() bool {
		return strings.Contains(direct.Do("INFO clients"), "blocked_clients:1\r\n")
	})
}

// laneIDs are the upstream's ids of the connections whose line in CLIENT LIST contains the text.
func laneIDs(admin *proxytest.Conn, having string) (ids []string) {
	admin.T.Helper()
	for line := range strings.SplitSeq(admin.Do("CLIENT LIST"), "\n") {
		if _, rest, ok := strings.Cut(line, "id="); ok && strings.Contains(line, having) {
			ids = append(ids, strings.Fields(rest)[0])
		}
	}
	slices.Sort(ids) // Redis lists them in an order that changes
	return ids
}

// Invalidations that a client redirects to a lane are neither
// replies to any client nor a reason to lose the lane.
func TestLanePushes(t *testing.T) {
	server := testredis.Start(t)
	p := sharing(t, server, 1)
	var clients []*proxytest.Conn
	for range 4 {
		c := proxytest.Dial(t, p.Addr)
		c.Expect("HELLO 3", "%…")
		proxytest.OpenLane(t, p.Addr, "HELLO 3")
		c.Expect("SET lane a", "+OK\r\n")
		c.Expect("DEL lane", ":1\r\n")
		clients = append(clients, c)
	}
	admin := proxytest.Dial(t, server.Addr())
	lane := laneIDs(admin, "cmd=del ")
	if len(lane) != 1 {
		t.Fatalf("lanes: %q", lane)
	}
	admin.Expect("CLIENT TRACKING ON REDIRECT "+lane[0]+" BCAST", "+OK\r\n")
	admin.Expect("SET idle 1", "+OK\r\n")
	for i := range 100 {
		for j, c := range clients {
			c.Send(fmt.Sprintf("SET k%d %04d", j, i), fmt.Sprintf("GET k%d", j),
				fmt.Sprintf("ECHO e%d:%04d", j, i))
		}
		for j, c := range clients {
			for _, want := range []string{"+OK\r\n", fmt.Sprintf("$4\r\n%04d\r\n", i),
				fmt.Sprintf("$7\r\ne%d:%04d\r\n", j, i)} {
				if got := c.Reply(); got != want {
					t.Fatalf("%d: client %d got %q, want %q", i, j, got, want)
				}
			}
		}
	}
	if now := laneIDs(admin, "id="+lane[0]+" "); len(now) != 1 {
		t.Error("the lane was lost")
	}
}

// A large request that finds no upstream is dropped whole, whatever went by a lane before.
func TestLargeRequestWithoutUpstream(t *testing.T) {
	server := testredis.Start(t)
	p := sharing(t, server, 1)
	c := proxytest.SharedClient(t, p.Addr)
	server.Kill()
	big := strings.Repeat("x", 300<<10)
	c.WriteRaw(fmt.Sprintf("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$%d\r\n%s\r\n", len(big), big))
	if got := c.Reply(); !strings.HasPrefix(got, "-UPSTREAM") {
		t.Errorf("got %q", got)
	}
	server.Restart()
	c.Expect("PING", "+PONG\r\n")
}

// Close doesn't wait for an upstream that has stopped reading.
func TestCloseWithHungUpstream(t *testing.T) {
	server := testredis.Start(t)
	p := sharing(t, server, 1)
	c := proxytest.SharedClient(t, p.Addr)
	server.Pause()
	defer server.Resume()
	go func() { // ends when the connection closes
		req := fmt.Sprintf("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$%d\r\n%s\r\n", 30000,
			strings.Repeat("x", 30000))
		for range 1000 {
			if _, err := c.Write([]byte(req)); err != nil {
				return
			}
		}
	}()
	looks, read := 0, uint64(0)
	testwait.Until(t, "the proxy reads no more", func() bool {
		if now := p.Server.Stats().BytesIn; now != read {
			looks, read = 0, now
		}
		looks++
		return looks == 50
	})
	done := make(chan struct{})
	go func() { p.Server.Close(); close(done) }() // waited for below
	testwait.For(t, "Close returns, though the upstream hangs", done)
}

// More requests that can change the state than the proxy can record.
func TestManyStatefulRequests(t *testing.T) {
	p := sharing(t, testredis.Start(t), 1)
	c := proxytest.SharedClient(t, p.Addr)
	const n = 20000
	go c.Write([]byte(strings.Repeat("SELECT 0\r\n", n) + "ECHO end\r\n"))
	for i := range n {
		if got := c.Reply(); got != "+OK\r\n" {
			t.Fatalf("%d: %q", i, got)
		}
	}
	if got := c.Reply(); got != "$3\r\nend\r\n" {
		t.Error(got)
	}
}

// A client that begins to use scripts while another's script
// runs too long gets BUSY and doesn't wait for it.
func TestBusyScriptLane(t *testing.T) {
	server := testredis.Start(t, "--busy-reply-threshold", "50")
	p := sharing(t, server, 1)
	slow, other, third := proxytest.SharedClient(t, p.Addr), proxytest.SharedClient(t, p.Addr),
		proxytest.SharedClient(t, p.Addr)
	slow.Expect("EVAL return(1) 0", ":1\r\n")
	slow.Send("EVAL while(1)do(function()end)()end 0")
	direct := proxytest.Dial(t, server.Addr())
	testwait.Until(t, "Redis says that it is busy", func() bool {
		return strings.HasPrefix(direct.Do("PING"), "-BUSY")
	})
	for _, c := range []*proxytest.Conn{other, third} {
		c.Expect("EVAL return(2) 0", "-BUSY…")
		c.Expect("GET a", "-BUSY…")
		c.Expect("LOCK a 600", "-BUSY…")
	}
	direct.Expect("SCRIPT KILL", "+OK\r\n")
	if got := slow.Reply(); !strings.Contains(got, "killed by user") {
		t.Errorf("the script: %q", got)
	}
	other.Expect("EVAL return(3) 0", ":3\r\n")
}

// The upstream keeps a lane open for the other clients, whatever one of them sends.
func TestMalformedRequestsLeaveTheLane(t *testing.T) {
	server := testredis.Start(t)
	p := sharing(t, server, 1)
	admin, other := proxytest.Dial(t, server.Addr()), proxytest.SharedClient(t, p.Addr)
	other.Expect("DEL lane", ":0\r\n")
	before := laneIDs(admin, "cmd=del ")
	for _, request := range testhostile.Requests(t) {
		c := proxytest.SharedClient(t, p.Addr)
		c.WriteRaw(string(request))
		c.CloseWrite()
		c.SetReadDeadline(testwait.Deadline())
		io.Copy(io.Discard, c.In)
		c.Close()
		if got := other.Do("PING"); got != "+PONG\r\n" {
			t.Fatalf("%.100q: another client is answered %q", request, got)
		}
	}
	other.Expect("DEL lane", ":0\r\n")
	if after := laneIDs(admin, "cmd=del "); !slices.Equal(before, after) || len(after) != 1 {
		t.Errorf("lane %q before, %q after", before, after)
	}
}
