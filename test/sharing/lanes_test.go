package sharing_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/proxy"
)

// Clients share connections until their state needs a home, and return when it doesn't.

// sharing starts a proxy whose clients share, in whatever mode the others run.
func sharing(t testing.TB, server *testredis.Server, conns int) *proxytest.Proxy {
	t.Helper()
	return proxytest.Start(t, server.URL(), func(cfg *proxy.Config) {
		cfg.Dedicated, cfg.UpstreamConns = false, conns
	})
}

// laneClients is how many connections server has, without this one and those of replicas.
func laneClients(admin *proxytest.Conn) int {
	admin.T.Helper()
	return strings.Count(admin.Do("CLIENT LIST TYPE normal"), "id=") - 1
}

func TestLanesAreFew(t *testing.T) {
	server := testredis.Start(t)
	p := proxytest.Start(t, server.URL(), func(cfg *proxy.Config) {
		cfg.Dedicated, cfg.UpstreamConns, cfg.HomeIdle = false, 3, 100*time.Millisecond
	})
	admin := proxytest.Dial(t, server.Addr())
	var clients []*proxytest.Conn
	for i := range 300 {
		c := proxytest.Dial(t, p.Addr)
		c.Send("PING")
		clients = append(clients, c)
		if i%50 == 49 {
			for _, c := range clients[len(clients)-50:] {
				c.Reply()
			}
		}
	}
	shared := func() int { return p.Server.Stats().Connections.Shared }
	for round := 0; round < 3 || round < 300 && shared() < 300; round++ {
		for i, c := range clients {
			c.Send(fmt.Sprintf("SET k%d %04d", i, i), fmt.Sprintf("GET k%d", i))
		}
		for i, c := range clients {
			if got, want := c.Reply()+c.Reply(), fmt.Sprintf("+OK\r\n$4\r\n%04d\r\n",
				i); got != want {
				t.Fatalf("client %d: %q", i, got)
			}
		}
	}
	// One that got no lane at first, on a busy machine, has a home until it has not used it.
	testwait.Until(t, "none is at home", func() bool { return p.Server.Stats().Connections.Homes == 0 })
	st := p.Server.Stats().Connections
	// A lane whose upstream is silent for 100 ms, as on a busy machine, is replaced, and ends when
	// the last client has left it.
	if st.Shared != 300 || st.Lanes > 6 {
		t.Errorf("%+v", st)
	}
	if got := laneClients(admin); got > st.Lanes+st.Homes+st.Spares+1 { // whether Redis lets new clients in
		t.Errorf("the upstream has %d connections, the proxy knows of %+v", got, st)
	}
	for _, c := range clients {
		c.Close()
	}
	testwait.Until(t, "idle lanes are few", func() bool {
		return p.Server.Stats().Connections.Lanes <= 8
	})
}

// These requests keep a client at its home, or let it go by a lane again.
func TestClientsAtHome(t *testing.T) {
	server := testredis.Start(t)
	p := sharing(t, server, 1)
	type step struct {
		send string
		home bool // where the next plain request goes
	}
	for name, steps := range map[string][]step{
		"data": {{"SET a b", false}, {"GET a", false}, {"EVAL return(1) 0", false},
			{"XREAD COUNT 1 STREAMS nothing 0", false}},
		"transaction":           {{"MULTI", true}, {"SET a b", true}, {"EXEC", false}},
		"transaction discarded": {{"MULTI", true}, {"SET a b", true}, {"DISCARD", false}},
		"aborted":               {{"MULTI", true}, {"SET a", true}, {"EXEC", false}},
		"watch":                 {{"WATCH a", true}, {"GET a", true}, {"UNWATCH", false}},
		"watch and exec":        {{"WATCH a", true}, {"MULTI", true}, {"EXEC", false}},
		"subscribe":             {{"SUBSCRIBE a", true}, {"UNSUBSCRIBE a", false}},
		"psubscribe":            {{"PSUBSCRIBE a*", true}, {"PUNSUBSCRIBE", false}},
		"ssubscribe":            {{"SSUBSCRIBE a", true}, {"SUNSUBSCRIBE", false}},
		"blocking": {{"BLPOP nothing 0.01", false},
			{"XREAD BLOCK 10 STREAMS nothing 0", false}},
		"no replies": {{"CLIENT REPLY ON", false}, {"SELECT 3", false},
			{"CLIENT SETNAME x", false}, {"CLIENT SETINFO LIB-NAME x", false}},
		"its number":        {{"CLIENT ID", false}, {"CLIENT LIST", false}, {"RESET", false}},
		"what RESET leaves": {{"CLIENT NO-EVICT ON", true}, {"RESET", true}, {"PING", true}},
		"of others": {{"CLIENT KILL ID 1000000", false},
			{"CLIENT UNBLOCK 1000000", false}, {"CLIENT GETNAME", false},
			{"CLIENT GETREDIR", false}},
		"of no effect known": {{"MODULE LIST", true}, {"GET a", true}, {"RESET", true},
			{"PING", true}},
		"unknown": {{"NOSUCHCOMMAND", false},
			{"CLIENT MAINT_NOTIFICATIONS ON", false}},
		"monitor": {{"MONITOR", true}, {"RESET", false}, {"PING", false}},
		"tracking": {{"HELLO 3", false}, {"CLIENT TRACKING ON", true},
			{"CLIENT TRACKING OFF", false}, {"CLIENT TRACKING ON", true}, {"RESET", false}},
		"reset": {{"SUBSCRIBE a", true}, {"RESET", false}, {"MULTI", true},
			{"RESET", false}, {"WATCH a", true}, {"RESET", false}, {"RESET", false}},
		"fence": {{"FENCE nothing 5 SET a b", false},
			{"FENCE nothing 5 GET a", false}},
		"lock command after": {{"MULTI|SET a b|EXEC|LOCK", false},
			{"WATCH a|LOCKINFO a|UNWATCH|LOCK a", false}, {"MULTI|LOCK|LOCK a 600|EXEC", false},
			{"BLPOP nothing 0.01|UNLOCK", false}},
		"wait": {{"SET a b", false}, {"WAIT 0 0", false}},
		"pubsub in RESP3": {{"HELLO 3", false}, {"SUBSCRIBE a", true}, {"GET a", true},
			{"UNSUBSCRIBE a", false}},
	} {
		t.Run(name, func(t *testing.T) {
			// Two do the same: for one alone there is no lane.
			pair := []*proxytest.Conn{proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)}
			for _, c := range pair {
				defer c.Close()
				c.Expect("PING", "+PONG\r\n")
			}
			testwait.Until(t, "earlier clients have left", func() bool {
				return p.Server.Stats().Clients == 2
			})
			for _, s := range steps {
				calls := strings.Split(s.send, "|")
				for _, c := range pair {
					c.Send(calls...)
					for range calls {
						for got := c.Reply(); s.send == "RESET" && got != "+RESET\r\n"; {
							got = c.Reply() // MONITOR's lines
						}
					}
				}
				testwait.Until(t, fmt.Sprintf("after %s: at home %v", s.send,
					s.home), func() bool {
					for _, c := range pair {
						c.Send("ECHO plain")
						for got := c.Reply(); got != "$5\r\nplain\r\n" && got != "+QUEUED\r\n" &&
							!strings.HasPrefix(got, "-ERR Can't execute"); {
							got = c.Reply() // MONITOR's lines
						}
					}
					return p.Server.Stats().Connections.Shared == map[bool]int{true: 0,
						false: 2}[s.home]
				})
			}
			c := pair[0]
			c.Expect("ECHO end", "$3\r\nend\r\n")
		})
	}
	testwait.Until(t, "no home is left", func() bool {
		return p.Server.Stats().Connections.Homes == 0
	})
}

// A client that asks for silence has no lane meanwhile, and its replies are in step afterwards.
func TestLaneReplySkip(t *testing.T) {
	server := testredis.Start(t)
	p := sharing(t, server, 1)
	c, other := proxytest.SharedClient(t, p.Addr), proxytest.SharedClient(t, p.Addr)
	for i := range 50 {
		c.Send("CLIENT REPLY SKIP", "SET a 1", fmt.Sprintf("ECHO %04d", i), "CLIENT REPLY OFF",
			"SET a 2", "GET a", "CLIENT REPLY ON", "GET a", fmt.Sprintf("LOCK l%d 600", i),
			"CLIENT REPLY SKIP", "UNLOCK nothing", "ECHO end")
		other.Send("PING", fmt.Sprintf("ECHO o%d", i))
		for _, want := range []string{fmt.Sprintf("$4\r\n%04d\r\n", i), "+OK\r\n", "$1\r\n2\r\n",
			":", "$3\r\nend\r\n"} {
			if got := c.Reply(); !strings.HasPrefix(got, want) {
				t.Fatalf("%d: got %q, want %q", i, got, want)
			}
		}
		if got := other.Reply() + other.Reply(); !strings.HasSuffix(got,
			fmt.Sprintf("o%d\r\n", i)) {
			t.Fatalf("another client: %q", got)
		}
	}
}

// A client that changes database, protocol and transaction
// state in one pipeline is always in the right state.
func TestLaneMoves(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := sharing(t, server, 2)
	c := proxytest.SharedClient(t, p.Addr)
	for db := range 5 {
		c.Do(fmt.Sprintf("SELECT %d", db))
		c.Do(fmt.Sprintf("SET where %d", db))
	}
	var pipeline, want []string
	ask := func(command, reply string) {
		pipeline, want = append(pipeline, command), append(want, reply)
	}
	for i := range 80 {
		db := i % 5
		ask(fmt.Sprintf("SELECT %d", db), "+OK\r\n")
		ask("GET where", fmt.Sprintf("$1\r\n%d\r\n", db))
		switch i % 4 {
		case 0:
			ask("MULTI", "+OK\r\n")
			ask("GET where", "+QUEUED\r\n")
			ask("SELECT 4", "+QUEUED\r\n")
			ask("EXEC", fmt.Sprintf("*2\r\n$1\r\n%d\r\n+OK\r\n", db))
			ask("GET where", "$1\r\n4\r\n")
		case 1:
			ask("EVAL return(redis.call('GET','where')) 0", fmt.Sprintf("$1\r\n%d\r\n", db))
			ask("GET nothing", "$-1\r\n")
		case 2:
			ask("BLPOP nothing 0.001", "*-1\r\n")
			ask("GET where", fmt.Sprintf("$1\r\n%d\r\n", db))
		case 3:
			ask("SUBSCRIBE x", "*3\r\n$9\r\nsubscribe\r\n$1\r\nx\r\n:1\r\n")
			ask("UNSUBSCRIBE x", "*3\r\n$11\r\nunsubscribe\r\n$1\r\nx\r\n:0\r\n")
			ask("GET where", fmt.Sprintf("$1\r\n%d\r\n", db))
		}
	}
	c.Send(pipeline...)
	for i, want := range want {
		if got := c.Reply(); got != want {
			t.Fatalf("%d, %s: got %q, want %q", i, pipeline[i], got, want)
		}
	}
}
