package lockproxy_test

import (
	"strings"
	"testing"
	"time"

	"lockproxy/internal/testredis"
)

// WAIT is about what its client has written, by whatever connection.
func TestWaitCoversWhatWentByLanes(t *testing.T) {
	server := testredis.Start(t)
	replica := testredis.StartReplicas(t, server, 1)[0]
	p := sharing(t, server, 1)
	c, other := trusted(t, p.addr), trusted(t, p.addr)
	c.expect("SET a 1", "+OK\r\n")
	c.expect("WAIT 1 5000", ":1\r\n")
	replica.Pause()
	for _, writes := range [][]string{
		{"SET a 2"},
		{"SET a 3", "MULTI", "EXEC"},
		{"SET a 4", "MULTI", "SET b 1", "EXEC", "GET b"},
		{"SET a 5", "BLPOP nothing 0.001"},
		{"EVAL return(redis.call('INCR','n')) 0"},
		{"SET a 6", "CLIENT SETNAME x"},
	} {
		c.send(append(writes, "WAIT 1 50")...)
		for range writes {
			c.reply()
		}
		if got := c.reply(); got != ":0\r\n" {
			t.Errorf("%q: WAIT says %q though the replica has nothing", writes, got)
		}
		c.send(writes...)
		for range writes {
			c.reply()
		}
		c.expect("WAIT 1 50", ":0\r\n")
		other.expect("GET a", "$…") // nobody else stands behind a WAIT
	}
	replica.Resume()
	c.expect("WAIT 1 5000", ":1\r\n")
}

// After the loss of the lane by which a client wrote, it is not told that its writes have arrived.
func TestWaitAfterALostLane(t *testing.T) {
	server := testredis.Start(t)
	replica := testredis.StartReplicas(t, server, 1)[0]
	p := sharing(t, server, 1)
	admin := dial(t, server.Addr())
	for _, then := range []string{"", "GET a", "MULTI"} {
		c := trusted(t, p.addr)
		replica.Pause()
		c.expect("SET a 1", "+OK\r\n")
		lanes := p.server.Stats().Connections
		admin.expect("CLIENT KILL TYPE normal SKIPME yes", ":…")
		eventually(t, 5*time.Second, "the proxy sees it", func() bool { return p.server.Stats().Connections.Lanes == 0 })
		if then != "" {
			c.do(then)
		}
		if then == "MULTI" {
			c.do("EXEC")
		}
		got := c.do("WAIT 1 50")
		if got != ":0\r\n" && !strings.HasPrefix(got, "-UPSTREAM") {
			t.Errorf("after %q (%+v): WAIT says %q", then, lanes, got)
		}
		replica.Resume()
		c.Close()
	}
}

// Who may not publish is told so where it matters, and never that writes have arrived which haven't.
func TestWaitOfWhoMayNotPublish(t *testing.T) {
	server := testredis.Start(t)
	replica := testredis.StartReplicas(t, server, 1)[0]
	p := sharing(t, server, 1)
	dial(t, server.Addr()).expect("ACL SETUSER w on >pw ~* -@all +@read +@write +wait +ping", "+OK\r\n")
	c := dial(t, p.addr)
	c.expect("AUTH w pw", "+OK\r\n")
	c.expect("SET a 1", "+OK\r\n")
	replica.Pause()
	c.expect("SET a 2", "+OK\r\n")
	got := c.do("WAIT 1 50")
	replica.Resume()
	if got != ":0\r\n" && !strings.HasPrefix(got, "-NOPERM lockproxy") {
		t.Errorf("WAIT says %q though the replica has nothing", got)
	}
	c.expect("GET a", "$1\r\n2\r\n")
}

// A lane that the proxy has closed since nobody uses it is not lost: WAIT behind a reply too large for a lane is answered.
func TestWaitBehindARetiredLane(t *testing.T) {
	server := testredis.Start(t)
	dial(t, server.Addr()).expect("SET big "+strings.Repeat("x", 300000), "+OK\r\n")
	p := sharing(t, server, 1)
	for i := range 10 {
		c := trusted(t, p.addr) // the only client of its login
		c.expect("SET mine 1", "+OK\r\n")
		if got := c.do("GET big"); len(got) < 300000 {
			t.Fatalf("GET: %.100q", got)
		}
		if got := c.do("WAIT 0 10"); got != ":0\r\n" {
			t.Errorf("client %d: WAIT says %q", i, got)
		}
		c.expect("GET mine", "$1\r\n1\r\n")
		c.Close()
		eventually(t, 5*time.Second, "it is gone", func() bool { return p.server.Stats().Clients == 0 })
	}
}
