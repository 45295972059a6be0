package lockproxy_test

import (
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/testhostile"
	"lockproxy/internal/testredis"
)

// trusted returns a client that the upstream has answered, so that what it asks next may go by a lane.
func trusted(t testing.TB, addr string) *rawConn {
	t.Helper()
	c := dial(t, addr)
	c.expect("PING", "+PONG\r\n")
	openLane(t, addr)
	c.expect("PING", "+PONG\r\n")
	return c
}

// openLane returns when the proxy at addr has a lane for what logs in with these commands, if its
// clients share any: for one client alone it opens none.
func openLane(t testing.TB, addr string, login ...string) {
	t.Helper()
	known, ok := testProxies.Load(addr)
	if !ok {
		return
	}
	p := known.(*testProxy)
	twins := []*rawConn{dial(t, addr), dial(t, addr)}
	for _, c := range twins {
		defer c.Close()
		for _, command := range login {
			if got := c.do(command); got[0] == '-' {
				t.Fatalf("%s: %q", command, got)
			}
		}
	}
	if !p.shares {
		return
	}
	eventually(t, 5*time.Second, "a lane is open", func() bool {
		twins[1].do("PING")
		id := strings.Trim(twins[0].do("CLIENT ID"), ":\r\n") // by its home
		twins[0].do("PING")
		return !strings.Contains(twins[1].do("CLIENT LIST ID "+id), "cmd=ping") // which went by a lane, then
	})
}

// A request of the proxy's own behind one that ends the need for a connection of the session's own.
func TestLaneOwnRequestsBehindStateChanges(t *testing.T) {
	p := sharing(t, testredis.Start(t), 1)
	for _, first := range []struct{ send, want string }{
		{"SELECT 0", "+OK\r\n"}, {"CLIENT SETNAME x", "+OK\r\n"}, {"UNWATCH", "+OK\r\n"},
	} {
		for _, second := range []struct{ send, want string }{
			{"COMMAND COUNT", ":"}, {"INFO lockproxy", "$"}, {"LOCK a 1 OWNER me", ":"}, {"COMMAND INFO get", "*"},
		} {
			c := trusted(t, p.addr)
			for range 20 {
				c.send(first.send, second.send, "PING")
				if got := c.reply(); got != first.want {
					t.Fatalf("%s: %q", first.send, got)
				}
				if got := c.reply(); !strings.HasPrefix(got, second.want) {
					t.Fatalf("%s: %q", second.send, got)
				}
				if got := c.reply(); got != "+PONG\r\n" {
					t.Fatalf("PING: %q", got)
				}
			}
			c.Close()
		}
	}
}

// A stream's reader that blocks must not do so on a lane, whatever its group is called.
func TestLaneIsNotBlockedByReaders(t *testing.T) {
	p := sharing(t, testredis.Start(t), 1)
	c, other := trusted(t, p.addr), trusted(t, p.addr)
	c.expect("XGROUP CREATE s streams $ MKSTREAM", "+OK\r\n")
	c.send("XREADGROUP GROUP streams me BLOCK 0 STREAMS s >")
	time.Sleep(50 * time.Millisecond)
	other.expect("XADD s 1-1 a b", "$3\r\n1-1\r\n")
	if got := c.reply(); !strings.Contains(got, "1-1") {
		t.Errorf("XREADGROUP: %q", got)
	}
}

// laneIDs are the upstream's numbers of its connections that last ran a command with this text in its line of CLIENT LIST.
func laneIDs(admin *rawConn, having string) (ids []string) {
	admin.t.Helper()
	for line := range strings.SplitSeq(admin.do("CLIENT LIST"), "\n") {
		if _, rest, ok := strings.Cut(line, "id="); ok && strings.Contains(line, having) {
			ids = append(ids, strings.Fields(rest)[0])
		}
	}
	return ids
}

// Invalidations that some client redirects to a lane are nobody's replies, and nobody's loss.
func TestLanePushes(t *testing.T) {
	server := testredis.Start(t)
	p := sharing(t, server, 1)
	var clients []*rawConn
	for range 4 {
		c := dial(t, p.addr)
		c.expect("HELLO 3", "%…")
		openLane(t, p.addr, "HELLO 3")
		c.expect("SET lane a", "+OK\r\n")
		c.expect("DEL lane", ":1\r\n")
		clients = append(clients, c)
	}
	admin := dial(t, server.Addr())
	lane := laneIDs(admin, "cmd=del ")
	if len(lane) != 1 {
		t.Fatalf("lanes: %q", lane)
	}
	admin.expect("CLIENT TRACKING ON REDIRECT "+lane[0]+" BCAST", "+OK\r\n")
	admin.expect("SET idle 1", "+OK\r\n")
	for i := range 100 {
		for j, c := range clients {
			c.send(fmt.Sprintf("SET k%d %04d", j, i), fmt.Sprintf("GET k%d", j), fmt.Sprintf("ECHO e%d:%04d", j, i))
		}
		for j, c := range clients {
			for _, want := range []string{"+OK\r\n", fmt.Sprintf("$4\r\n%04d\r\n", i), fmt.Sprintf("$7\r\ne%d:%04d\r\n", j, i)} {
				if got := c.reply(); got != want {
					t.Fatalf("%d: client %d got %q, want %q", i, j, got, want)
				}
			}
		}
	}
	if now := laneIDs(admin, "id="+lane[0]+" "); len(now) != 1 {
		t.Error("the lane was lost")
	}
}

// A large request that finds no upstream is dropped whole, whatever has gone by a lane before.
func TestLargeRequestWithoutUpstream(t *testing.T) {
	server := testredis.Start(t)
	p := sharing(t, server, 1)
	c := trusted(t, p.addr)
	server.Kill()
	big := strings.Repeat("x", 300<<10)
	c.write(fmt.Sprintf("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$%d\r\n%s\r\n", len(big), big))
	if got := c.reply(); !strings.HasPrefix(got, "-UPSTREAM") {
		t.Errorf("got %q", got)
	}
	time.Sleep(50 * time.Millisecond)
	server.Restart()
	c.expect("PING", "+PONG\r\n")
}

// Closing doesn't wait for an upstream that has stopped reading.
func TestCloseWithHungUpstream(t *testing.T) {
	server := testredis.Start(t)
	p := sharing(t, server, 1)
	c := trusted(t, p.addr)
	server.Pause()
	defer server.Resume()
	go func() { // ends when the connection closes
		req := fmt.Sprintf("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$%d\r\n%s\r\n", 30000, strings.Repeat("x", 30000))
		for range 1000 {
			if _, err := c.Write([]byte(req)); err != nil {
				return
			}
		}
	}()
	time.Sleep(500 * time.Millisecond)
	done := make(chan struct{})
	go func() { p.server.Close(); close(done) }() // waited for below
	select {
	case <-done:
	case <-time.After(3 * time.Second):
		t.Error("Close waits for a hung upstream")
		server.Resume()
		<-done
	}
}

// More requests that may change the state than the proxy keeps in mind at a time.
func TestManyStatefulRequests(t *testing.T) {
	p := sharing(t, testredis.Start(t), 1)
	c := trusted(t, p.addr)
	const n = 20000
	go c.Write([]byte(strings.Repeat("SELECT 0\r\n", n) + "ECHO end\r\n"))
	for i := range n {
		if got := c.reply(); got != "+OK\r\n" {
			t.Fatalf("%d: %q", i, got)
		}
	}
	if got := c.reply(); got != "$3\r\nend\r\n" {
		t.Error(got)
	}
}

// Who begins to use scripts while another's runs too long is told so, and doesn't stand behind it.
func TestBusyScriptLane(t *testing.T) {
	server := testredis.Start(t, "--busy-reply-threshold", "50")
	p := sharing(t, server, 1)
	slow, other, third := trusted(t, p.addr), trusted(t, p.addr), trusted(t, p.addr)
	slow.expect("EVAL return(1) 0", ":1\r\n")
	slow.send("EVAL while(1)do(function()end)()end 0")
	time.Sleep(300 * time.Millisecond)
	for _, c := range []*rawConn{other, third} {
		began := time.Now()
		c.expect("EVAL return(2) 0", "-BUSY…")
		c.expect("GET a", "-BUSY…")
		c.expect("LOCK a 1", "-BUSY…")
		if took := time.Since(began); took > time.Second {
			t.Errorf("told BUSY after %v", took)
		}
	}
	dial(t, server.Addr()).expect("SCRIPT KILL", "+OK\r\n")
	if got := slow.reply(); !strings.Contains(got, "killed by user") {
		t.Errorf("the script: %q", got)
	}
	other.expect("EVAL return(3) 0", ":3\r\n")
}

// Whatever a client sends once it shares a lane, the upstream keeps that open for the others.
func TestMalformedRequestsLeaveTheLane(t *testing.T) {
	server := testredis.Start(t)
	p := sharing(t, server, 1)
	admin, other := dial(t, server.Addr()), trusted(t, p.addr)
	other.expect("DEL lane", ":0\r\n")
	before := laneIDs(admin, "cmd=del ")
	for _, request := range testhostile.Requests(t) {
		c := trusted(t, p.addr)
		c.write(string(request))
		c.Conn.(*net.TCPConn).CloseWrite()
		c.SetReadDeadline(time.Now().Add(2 * time.Second))
		io.Copy(io.Discard, c.in)
		c.Close()
		if got := other.do("PING"); got != "+PONG\r\n" {
			t.Fatalf("%.100q: another client is answered %q", request, got)
		}
	}
	other.expect("DEL lane", ":0\r\n")
	if after := laneIDs(admin, "cmd=del "); !slices.Equal(before, after) || len(after) != 1 {
		t.Errorf("lane %q before, %q after", before, after)
	}
}
