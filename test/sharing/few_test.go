package sharing_test

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/wire"
	"lockproxy/proxy"
)

// Clients that only read and write take hardly any connections of Redis.
func TestManyClientsFewConnections(t *testing.T) {
	server := testredis.Start(t)
	p := sharing(t, server, 1)
	admin := proxytest.Dial(t, server.Addr())
	var clients []*proxytest.Conn
	for i := range 200 {
		c := proxytest.Dial(t, p.Addr)
		c.Expect(fmt.Sprintf("GET k%d", i), "$-1\r\n")
		clients = append(clients, c)
	}
	if got := laneClients(admin); got > 20 {
		t.Errorf("Redis has %d connections; the proxy knows of %+v", got, p.Server.Stats().Connections)
	}
	for i, c := range clients {
		c.Expect(fmt.Sprintf("SET k%d %d", i, i), "+OK\r\n")
	}
	if got := laneClients(admin); got > 20 {
		t.Errorf("Redis has %d connections; the proxy knows of %+v", got, p.Server.Stats().Connections)
	}
}

// Clients that do what libraries do by themselves when they connect need a home for that, but keep
// none.
func TestClientsThatGreetKeepFewConnections(t *testing.T) {
	server := testredis.Start(t)
	p := proxytest.Start(t, server.URL(), func(cfg *proxy.Config) { cfg.HomeIdle = time.Hour })
	admin := proxytest.Dial(t, server.Addr())
	var clients []*proxytest.Conn
	for i := range 150 {
		c := proxytest.Dial(t, p.Addr)
		for _, greeting := range [][]string{
			{"CLIENT SETINFO LIB-NAME redis-py", "CLIENT SETINFO LIB-VER 5.0.0"},
			{"HELLO 3", "CLIENT SETNAME app"}, {"SELECT 1"},
		}[i%3] {
			c.Do(greeting)
		}
		if got := c.Do("GET k"); got != "$-1\r\n" && got != "_\r\n" {
			t.Fatal(got)
		}
		clients = append(clients, c)
	}
	testwait.Until(t, "Redis has few connections", func() bool { return laneClients(admin) <= 50 })
	for i, c := range clients {
		want := []string{"$-1\r\n", "$3\r\napp\r\n", "$-1\r\n"}[i%3]
		if got := c.Do("CLIENT GETNAME"); got != want {
			t.Fatalf("the name is %q, want %q", got, want)
		}
	}
}

// While there are many homes, clients that greet get none: what they say holds nevertheless, for each
// alone, from the next request on.
func TestGreetersOfACrowdGetNoHomes(t *testing.T) {
	server := testredis.Start(t)
	p := proxytest.Start(t, server.URL(), func(cfg *proxy.Config) {
		cfg.Dedicated, cfg.HomeIdle = false, time.Hour
	})
	admin := proxytest.Dial(t, server.Addr())
	admin.Expect("HSET h f v", ":1\r\n")
	admin.Expect("SELECT 5", "+OK\r\n")
	admin.Expect("SET k five", "+OK\r\n")
	const others = 9
	for range others {
		proxytest.Dial(t, p.Addr).Expect("MULTI", "+OK\r\n")
	}
	var greeters []*proxytest.Conn
	for range 64 {
		greeters = append(greeters, proxytest.Dial(t, p.Addr))
	}
	wrongName := admin.DoWords("CLIENT", "SETNAME", "two words")
	setInfo := admin.Do("CLIENT SETINFO LIB-NAME lib")
	outOfRange, noNumber := admin.Do("SELECT 99"), admin.Do("SELECT x")
	for i, c := range greeters {
		switch i % 4 {
		case 0:
			c.Send("HELLO 3", "HGETALL h")
			if hello := c.Reply(); !strings.HasPrefix(hello, "%") {
				t.Fatalf("HELLO 3: %q", hello)
			}
			c.WantReply("%1\r\n$1\r\nf\r\n$1\r\nv\r\n")
		case 1:
			c.Send("SELECT 5", "GET k", "SELECT 0", "GET k", "SELECT 99", "SELECT x", "GET k")
			for _, want := range []string{"+OK\r\n", wire.Bulk("five"), "+OK\r\n", "$-1\r\n",
				outOfRange, noNumber, "$-1\r\n"} {
				c.WantReply(want)
			}
		case 2:
			c.Send(fmt.Sprint("CLIENT SETNAME app", i), "CLIENT SETINFO LIB-NAME lib", "GET k")
			c.WantReply("+OK\r\n")
			c.WantReply(setInfo)
			c.WantReply("$-1\r\n")
		case 3:
			if got := c.DoWords("CLIENT", "SETNAME", "two words"); got != wrongName {
				t.Fatalf("%q, want %q", got, wrongName)
			}
			c.Expect("HELLO 4", "-NOPROTO…")
			if hello := c.Do(fmt.Sprint("HELLO 2 SETNAME app", i)); hello[0] != '*' {
				t.Fatalf("HELLO 2: %q", hello)
			}
			c.Expect("HGETALL h", "*2\r\n$1\r\nf\r\n$1\r\nv\r\n")
		}
	}
	if got := p.Server.Stats().Connections.Homes; got > others+16 {
		t.Errorf("there are %d homes", got) // the 16 were refused something
	}
	for i, c := range greeters {
		want := wire.Bulk(fmt.Sprint("app", i))
		if i%4 == 0 {
			want = "_\r\n"
		} else if i%4 == 1 {
			want = "$-1\r\n"
		}
		c.Expect("CLIENT GETNAME", want)
	}
}

// A wrong password is told to a client that has greeted without a home, also by a server that does not
// say so behind a request without an answer: the client's name is told its home just before.
func TestWrongPasswordBehindAGreeting(t *testing.T) {
	server := testredis.Start(t)
	p := sharing(t, server, 1)
	for range 9 {
		proxytest.Dial(t, p.Addr).Expect("MULTI", "+OK\r\n")
	}
	for range 20 {
		c := proxytest.Dial(t, p.Addr)
		c.Expect("CLIENT SETNAME app", "+OK\r\n")
		c.Expect("AUTH nobody wrong", "-WRONGPASS…")
		c.Expect("CLIENT GETNAME", wire.Bulk("app"))
	}
}

// Clients that log in, ask and leave find the connections of one another even if they are many: as
// many are kept as are in use.
func TestSparesOfACrowd(t *testing.T) {
	server := testredis.Start(t)
	p := sharing(t, server, 1)
	server.Ask("ACL", "SETUSER", "ann", "on", ">pw", "~*", "&*", "+@all")
	var leaving []*proxytest.Conn
	for range 50 {
		proxytest.Dial(t, p.Addr).Expect("MULTI", "+OK\r\n")
		proxytest.Dial(t, p.Addr).Expect("MULTI", "+OK\r\n")
		c := proxytest.Dial(t, p.Addr)
		c.Expect("AUTH ann pw", "+OK\r\n")
		leaving = append(leaving, c)
	}
	for _, c := range leaving {
		c.Close()
	}
	testwait.Until(t, "all their connections wait for others", func() bool {
		return p.Server.Stats().Connections.Spares >= len(leaving)
	})
}

// leavers are ways to use a connection of one's own and to leave it.
var leavers = []struct {
	say    []string
	waits  string // what shows that all of that has run; "" for the last reply
	reused bool   // the next client can get it
}{
	{[]string{"CLIENT GETNAME"}, "", true},
	{[]string{"CLIENT SETNAME secret", "SELECT 3", "SET secret 1"}, "", true},
	{[]string{"AUTH ann pw", "SELECT 2", "WATCH secret"}, "", true},
	{[]string{"MULTI", "SET secret 1", "DISCARD"}, "", true},
	{[]string{"SUBSCRIBE secret", "UNSUBSCRIBE secret"}, "", true},
	{[]string{"SUBSCRIBE secret"}, "", false},
	{[]string{"PSUBSCRIBE *"}, "", false},
	{[]string{"MULTI", "SET secret 1"}, "", false},
	{[]string{"MONITOR"}, "", false},
	{[]string{"HELLO 3", "CLIENT TRACKING ON BCAST"}, "", false},
	{[]string{"CLIENT ID"}, "", false},
	{[]string{"CLIENT NO-EVICT ON"}, "", false},
	{[]string{"CLIENT REPLY OFF", "CLIENT SETNAME silent"}, "name=silent", false},
	{[]string{"BLPOP nothing 0"}, "cmd=blpop", false},
	{[]string{"SELECT 0", "QUIT"}, "", false},
}

// ofState is what CLIENT INFO says of the state of a client.
var ofState = regexp.MustCompile(` (name|db|sub|psub|ssub|multi|watch|user|redir|resp|lib-\w+)=\S*`)

// unmarked is what CLIENT INFO says of a new client: U is that it has come by a Unix socket.
var unmarked = regexp.MustCompile(" flags=[NU] ")

// Whatever a client has done on its own connection, and however it leaves, the next client that gets
// it finds a new one, and gets its own replies only.
func TestHomesServeOthers(t *testing.T) {
	server := testredis.Start(t)
	p := sharing(t, server, 1)
	admin := proxytest.Dial(t, server.Addr())
	admin.Expect("ACL SETUSER ann on >pw ~* &* +@all", "+OK\r\n")
	fresh := proxytest.Dial(t, server.Addr())
	fresh.Send("MULTI", "PING", "EXEC")
	fresh.Until("*1\r\n+PONG\r\n")
	wantState := ofState.FindAllString(fresh.Do("CLIENT INFO"), -1)
	seed := rand.Uint64()
	t.Log("seed", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for round := range 150 {
		l := leavers[random.IntN(len(leavers))]
		c := proxytest.Dial(t, p.Addr)
		c.Send(l.say...)
		if l.waits == "" {
			for range l.say {
				c.Reply()
			}
		} else {
			testwait.Until(t, l.waits, func() bool {
				return strings.Contains(admin.Do("CLIENT LIST"), l.waits)
			})
		}
		if random.IntN(2) == 0 {
			c.WriteRaw("*3\r\n$3\r\nSET\r\n$6\r\nsec") // half a request
		}
		before := p.Server.Stats().Connections
		c.Close()
		testwait.Until(t, "it has left", func() bool {
			st := p.Server.Stats()
			return st.Clients == 0 && st.Connections.Homes == 0
		})
		if l.reused {
			testwait.Until(t, "its connection is ready for another", func() bool {
				return p.Server.Stats().Connections.Spares > before.Spares || round > 20
			})
		}
		admin.Do("PUBLISH secret secret")
		marker := fmt.Sprint("marker", round)
		next := proxytest.Dial(t, p.Addr)
		next.Expect("CLIENT GETNAME", "$-1\r\n")
		next.Expect("ACL WHOAMI", wire.Bulk("default"))
		next.Expect("MULTI", "+OK\r\n")
		next.Expect("SET "+marker+" "+marker, "+QUEUED\r\n")
		next.Expect("GET "+marker, "+QUEUED\r\n")
		next.Expect("EXEC", "*2\r\n+OK\r\n"+wire.Bulk(marker))
		info := next.Do("CLIENT INFO")
		state := ofState.FindAllString(info, -1)
		if !slices.Equal(state, wantState) || !unmarked.MatchString(info) {
			t.Fatalf("after %q: %q, of a new client %q", l.say, info, wantState)
		}
		next.Close()
		if got := admin.Do("GET " + marker); got != wire.Bulk(marker) {
			t.Fatalf("after %q the database is another: %q", l.say, got)
		}
	}
	info := proxytest.Dial(t, p.Addr).Do("INFO lockproxy")
	st := p.Server.Stats().Connections
	if st.Reused == 0 || st.Opened < max(150, st.Reused) {
		t.Errorf("150 clients have had connections that others had had: %+v", st)
	}
	for _, line := range []string{fmt.Sprintf("upstream_homes_opened:%d\r\n", st.Opened),
		fmt.Sprintf("upstream_homes_reused:%d\r\n", st.Reused)} {
		if !strings.Contains(info, line) {
			t.Errorf("INFO lacks %q: %q", line, info)
		}
	}
}

// Clients that log in get the rights that Redis gives them, on whatever connection, and nobody gets
// those of the client that had it before.
func TestRightsOfHomesThatServeOthers(t *testing.T) {
	server := testredis.Start(t)
	p := sharing(t, server, 1)
	admin := proxytest.Dial(t, server.Addr())
	admin.Expect("ACL SETUSER ann on >pw ~* &* +@all", "+OK\r\n")
	admin.Expect("ACL SETUSER bob on >pw ~* &* +@all -set", "+OK\r\n")
	admin.Expect("CONFIG SET requirepass secret", "+OK\r\n")
	for round := range 60 {
		user := []string{"ann", "bob"}[round%2]
		c := proxytest.Dial(t, p.Addr)
		c.Expect("GET a", "-NOAUTH…")
		c.Expect("MULTI", "-NOAUTH…")
		c.Expect("AUTH "+user+" wrong", "-WRONGPASS…")
		c.Expect("ACL WHOAMI", "-NOAUTH…")
		c.Expect("AUTH "+user+" pw", "+OK\r\n")
		c.Expect("ACL WHOAMI", wire.Bulk(user))
		if user == "bob" {
			c.Expect("SET a b", "-NOPERM…")
		} else {
			c.Expect("SET a b", "+OK\r\n")
		}
		if round%3 == 0 {
			c.Expect("RESET", "+RESET\r\n")
			c.Expect("GET a", "-NOAUTH…")
		}
		c.Close()
		testwait.Until(t, "it has left", func() bool {
			st := p.Server.Stats()
			return st.Clients == 0 && st.Connections.Homes == 0
		})
	}
	if st := p.Server.Stats().Connections; st.Reused == 0 {
		t.Errorf("no connection has served a second client: %+v", st)
	}
	// A client that came in without a password has no rights once there is one again.
	admin.WriteRaw("CONFIG SET requirepass \"\"\r\n")
	admin.WantReply("+OK\r\n")
	testwait.Until(t, "new clients need no password", func() bool {
		c := proxytest.Dial(t, p.Addr)
		defer c.Close()
		return c.Do("GET a") == wire.Bulk("b") && c.Do("CLIENT GETNAME") == "$-1\r\n"
	})
	admin.Expect("CONFIG SET requirepass secret", "+OK\r\n")
	proxytest.AwaitJudged(t, p)
	for range 10 {
		c := proxytest.Dial(t, p.Addr)
		for _, command := range []string{"GET a", "MULTI", "BLPOP l 1", "CLIENT ID", "LOCK l 600"} {
			c.Expect(command, "-NOAUTH…")
		}
		c.Close()
	}
}
