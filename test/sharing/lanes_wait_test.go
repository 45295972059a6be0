package sharing_test

import (
	"strings"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
)

// WAIT covers its client's writes, by whatever connection.
func TestWaitCoversWritesByLanes(t *testing.T) {
	server := testredis.Start(t)
	replica := testredis.StartReplicas(t, server, 1)[0]
	p := sharing(t, server, 1)
	c, other := proxytest.SharedClient(t, p.Addr), proxytest.SharedClient(t, p.Addr)
	c.Expect("SET a 1", "+OK\r\n")
	c.Expect("WAIT 1 60000", ":1\r\n")
	replica.Pause()
	for _, writes := range [][]string{
		{"SET a 2"},
		{"SET a 3", "MULTI", "EXEC"},
		{"SET a 4", "MULTI", "SET b 1", "EXEC", "GET b"},
		{"SET a 5", "BLPOP nothing 0.001"},
		{"EVAL return(redis.call('INCR','n')) 0"},
		{"SET a 6", "CLIENT SETNAME x"},
	} {
		c.Send(append(writes, "WAIT 1 50")...)
		for range writes {
			c.Reply()
		}
		if got := c.Reply(); got != ":0\r\n" {
			t.Errorf("%q: WAIT says %q though the replica has nothing", writes, got)
		}
		c.Send(writes...)
		for range writes {
			c.Reply()
		}
		c.Expect("WAIT 1 50", ":0\r\n")
		other.Expect("GET a", "$…") // no other client has to wait for a WAIT
	}
	replica.Resume()
	c.Expect("WAIT 1 60000", ":1\r\n")
}

// After the loss of the lane through which a client wrote, it
// is told that nobody knows what its writes have become, and disconnected.
func TestWaitAfterALostLane(t *testing.T) {
	server := testredis.Start(t)
	replica := testredis.StartReplicas(t, server, 1)[0]
	p := sharing(t, server, 1)
	admin := proxytest.Dial(t, server.Addr())
	for _, then := range []string{"", "GET a", "MULTI"} {
		c := proxytest.SharedClient(t, p.Addr)
		replica.Pause()
		c.Expect("SET a 1", "+OK\r\n")
		admin.Expect("CLIENT KILL TYPE normal SKIPME yes", ":…")
		testwait.Until(t, "the proxy has noticed the loss", func() bool {
			return p.Server.Stats().Connections.Lanes == 0
		})
		if then != "" {
			c.Do(then)
		}
		if then == "MULTI" {
			c.Do("EXEC")
		}
		c.Expect("WAIT 1 50", "-UPSTREAM a connection to the upstream was lost since…")
		c.Closed()
		replica.Resume()
	}
}

// A client that may not publish gets an error where that
// matters, and is never told that missing writes have arrived.
func TestWaitWithoutTheRightToPublish(t *testing.T) {
	server := testredis.Start(t)
	replica := testredis.StartReplicas(t, server, 1)[0]
	p := sharing(t, server, 1)
	proxytest.Dial(t, server.Addr()).Expect(
		"ACL SETUSER w on >pw ~* -@all +@read +@write +wait +ping", "+OK\r\n")
	c := proxytest.Dial(t, p.Addr)
	c.Expect("AUTH w pw", "+OK\r\n")
	c.Expect("SET a 1", "+OK\r\n")
	replica.Pause()
	c.Expect("SET a 2", "+OK\r\n")
	for range 2 { // the refusal did not catch it up
		got := c.Do("WAIT 1 50")
		if got != ":0\r\n" && !strings.HasPrefix(got, "-NOPERM lockproxy") {
			t.Errorf("WAIT says %q though the replica has nothing", got)
		}
	}
	replica.Resume()
	c.Expect("GET a", "$1\r\n2\r\n")
}

// A lane that the proxy has closed because no client uses it is not lost: WAIT after a reply too
// large for a lane is answered.
func TestWaitAfterARetiredLane(t *testing.T) {
	server := testredis.Start(t)
	proxytest.Dial(t, server.Addr()).Expect("SET big "+strings.Repeat("x", 300000), "+OK\r\n")
	p := sharing(t, server, 1)
	for i := range 10 {
		c := proxytest.SharedClient(t, p.Addr) // the only client of its login
		c.Expect("SET mine 1", "+OK\r\n")
		if got := c.Do("GET big"); len(got) < 300000 {
			t.Fatalf("GET: %.100q", got)
		}
		if got := c.Do("WAIT 0 10"); got != ":0\r\n" {
			t.Errorf("client %d: WAIT says %q", i, got)
		}
		c.Expect("GET mine", "$1\r\n1\r\n")
		c.Close()
		testwait.Until(t, "the client is gone", func() bool {
			return p.Server.Stats().Clients == 0
		})
	}
}

// WAITAOF covers its client's writes by lanes too, and is the upstream's error before Redis 7.2.
func TestWaitaofCoversWritesByLanes(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	synced, not := "*2\r\n:1\r\n:0\r\n", "*2\r\n:0\r\n:0\r\n"
	if !server.KnowsWaitaof() {
		synced = "-ERR unknown command 'WAITAOF'…"
		not = synced
	}
	c := proxytest.SharedClient(t, sharing(t, server, 1).Addr)
	for _, write := range []string{"SET a 1", "BLPOP nothing 0.001", "SET a 2"} {
		c.Do(write)
		c.Expect("WAITAOF 1 0 60000", synced)
	}
	proxytest.Dial(t, server.Addr()).Expect("CONFIG SET appendfsync no", "+OK\r\n")
	c.Expect("SET a 3", "+OK\r\n")
	c.Expect("WAITAOF 1 0 50", not)
	c.Expect("GET a", "$1\r\n3\r\n")
}

// WAIT does not count for a client what others have written, by connections that it shares or that
// they had before it. A client that has only read is answered as by a Redis that counts only a
// client's own writes: up to 7.0 Redis counts what others have written before the client's last
// request.
func TestWaitOfAClientThatWroteNothing(t *testing.T) {
	server := testredis.Start(t)
	replica := testredis.StartReplicas(t, server, 1)[0]
	p := sharing(t, server, 1)
	writer := proxytest.SharedClient(t, p.Addr)
	replica.Pause()
	defer replica.Resume()
	writer.Expect("SET a 1", "+OK\r\n")
	leaver := proxytest.Dial(t, p.Addr) // one of the connections that are open has written
	leaver.Expect("MULTI", "+OK\r\n")
	leaver.Expect("SET a 2", "+QUEUED\r\n")
	leaver.Expect("EXEC", "*1\r\n+OK\r\n")
	leaver.Close()
	testwait.Until(t, "its connection serves others", func() bool {
		return p.Server.Stats().Connections.Homes == 0
	})
	for _, before := range [][]string{
		{}, {"GET a"}, {"PING", "MGET a b"}, {"HGETALL h", "INFO server", "GET a"},
	} {
		direct := proxytest.Dial(t, server.Addr())
		direct.Do("PING") // as the other does
		var proxied *proxytest.Conn
		testwait.Until(t, "a client comes that has no connection of its own", func() bool {
			if p.Server.Stats().Connections.Homes > 0 { // of one before
				return false
			}
			proxied = proxytest.Dial(t, p.Addr)
			proxied.Expect("PING", "+PONG\r\n")
			if p.Server.Stats().Connections.Homes > 0 {
				proxied.Close()
				return false
			}
			return true
		})
		for _, command := range before {
			direct.Do(command)
			proxied.Do(command)
		}
		want := direct.Do("WAIT 1 50")
		got := proxied.Do("WAIT 1 50")
		if got != want && got != ":1\r\n" {
			t.Errorf("after %q: %q, directly %q", before, got, want)
		}
		proxied.Expect("SET a 3", "+OK\r\n")
		proxied.Expect("WAIT 1 50", ":0\r\n")
		proxied.Close()
	}
}
