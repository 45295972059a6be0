package relay_test

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/wire"
)

// These tests cannot be a comparison with a direct connection:
// they concern lock commands, or the end of clients.

// diffSession is a redis-server, a direct connection to it,
// and connections through a proxy in front of it.
type diffSession struct {
	t      *testing.T
	server *testredis.Server
	direct *diffConn
	addr   string
}

func newDiffSession(t *testing.T, args ...string) *diffSession {
	t.Helper()
	server := testredis.Start(t, append(diffServerArgs[:len(diffServerArgs):len(diffServerArgs)],
		args...)...)
	s := &diffSession{t: t, server: server, addr: proxytest.Start(t, server.URL(), nil).Addr}
	s.direct = s.dial(server.Addr())
	return s
}

func (s *diffSession) dial(addr string) *diffConn {
	s.t.Helper()
	conn, err := diffDial(addr)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.nc.Close() })
	return conn
}

// open connects through the proxy, in RESP2 or RESP3.
func (s *diffSession) open(proto string) *diffConn {
	s.t.Helper()
	conn := s.dial(s.addr)
	if reply := conn.do("HELLO", proto); diffIsError(reply) {
		s.t.Fatalf("HELLO %s is answered %q", proto, reply)
	}
	return conn
}

// waitFor asks the redis-server until the reply contains text, or with not until it does not.
func (s *diffSession) waitFor(call, text string, not bool) {
	s.t.Helper()
	testwait.Until(s.t, fmt.Sprintf("%s is answered %q: %v", call, text, !not), func() bool {
		return strings.Contains(s.direct.do(strings.Fields(call)...), text) != not
	})
}

// A diffWant is a call and the beginning of its reply; "" if there must be none.
type diffWant struct{ call, reply string }

// check makes the calls one by one, then all of them in one write.
func (s *diffSession) check(t *testing.T, proto string, steps []diffWant) {
	t.Helper()
	for _, pipelined := range []bool{false, true} {
		s.direct.do("FLUSHALL")
		conn := s.open(proto)
		var all []byte
		for _, step := range steps {
			words, err := diffWords(step.call)
			if err != nil {
				t.Fatal(err)
			}
			all = wire.Append(all, words...)
		}
		if pipelined {
			conn.nc.Write(all)
		}
		for i, step := range steps {
			if !pipelined {
				words, _ := diffWords(step.call)
				conn.send(words...)
			}
			if step.reply == "" {
				continue
			}
			if reply := conn.reply(); !strings.HasPrefix(reply, step.reply) {
				t.Fatalf("RESP%s, in one write: %v: step %d, %s: got %q, want %q…", proto,
					pipelined, i, step.call, reply, step.reply)
			}
		}
		conn.closeWrite()
		if rest := conn.rest(); rest != "(closed)" {
			t.Fatalf("RESP%s, in one write: %v: more comes: %q", proto, pipelined, rest)
		}
	}
}

// Lock commands run under CLIENT REPLY OFF and SKIP, and their replies are left out.
func TestDifferentialLocksWithoutReplies(t *testing.T) {
	s := newDiffSession(t)
	cases := map[string][]diffWant{
		"SKIP": {
			{"CLIENT REPLY SKIP", ""}, {"LOCK a 600", ""}, {"PING", "+PONG"}, {"UNLOCK a", ":1"},
			{"LOCK a 600", ":"}, {"CLIENT REPLY SKIP", ""}, {"UNLOCK a", ""}, {"EXISTS a", ":0"},
			{"CLIENT REPLY SKIP", ""}, {"LOCK a nonsense", ""}, {"PING", "+PONG"},
			{"CLIENT REPLY SKIP", ""}, {"LOCK", ""}, {"LOCK a 600", ":"},
			{"CLIENT REPLY SKIP", ""}, {"GET a", ""}, {"UNLOCK a", ":1"},
		},
		"OFF": {
			{"CLIENT REPLY OFF", ""}, {"LOCK a 600", ""}, {"LOCK b 600", ""}, {"UNLOCK b", ""},
			{"PING", ""}, {"UNLOCK nosuch", ""},
			{"LOCK a", ""}, {"CLIENT REPLY SKIP", ""}, {"LOCK c 600", ""},
			{"CLIENT REPLY ON", "+OK"}, {"EXISTS a b c", ":2"}, {"UNLOCK a", ":1"},
			{"UNLOCK b", ":0"}, {"UNLOCK c", ":1"},
		},
		"OFF, then RESET": {
			{"CLIENT REPLY OFF", ""}, {"LOCK a 600", ""}, {"RESET", "+RESET"}, {"UNLOCK a", ":1"},
			{"PING", "+PONG"},
		},
	}
	for name, steps := range cases {
		t.Run(name, func(t *testing.T) {
			s.check(t, "2", steps)
			s.check(t, "3", steps)
		})
	}
	// Redis never closes for a QUIT whose OK it doesn't send; a
	// proxy that did the same would keep both connections.
	t.Run("QUIT", func(t *testing.T) {
		for _, how := range []string{"OFF", "SKIP"} {
			conn := s.open("2")
			conn.send("CLIENT", "REPLY", how)
			conn.send("QUIT")
			if rest := conn.rest(); rest != "(closed)" {
				t.Errorf("QUIT under CLIENT REPLY %s: %q", how, rest)
			}
		}
	})
}

// Lock commands are answered, in order, in every state of a connection.
func TestDifferentialLocksInEveryState(t *testing.T) {
	s := newDiffSession(t)
	const lock, unlock = "LOCK a 600", "UNLOCK a"
	both := map[string][]diffWant{
		"SYNC refused": {{"MULTI", "+OK"}, {"SYNC", "-"}, {"DISCARD", "+OK"}, {lock, ":"},
			{unlock, ":1"}},
		"PSYNC refused": {{"MULTI", "+OK"}, {"PSYNC ? -1", "-"}, {"EXEC", "-EXECABORT"},
			{lock, ":"}, {unlock, ":1"}},
		"wrong AUTH": {{"AUTH wrong wrong", "-WRONGPASS"}, {lock, ":"}, {unlock, ":1"}},
		"another database": {{"SELECT 3", "+OK"}, {lock, ":"}, {"EXISTS a", ":1"},
			{"SELECT 0", "+OK"}, {"EXISTS a", ":0"}, {unlock, ":0"}, {"SELECT 3", "+OK"},
			{unlock, ":1"}},
		"SELECT in MULTI": {{"MULTI", "+OK"}, {"SELECT 5", "+QUEUED"}, {"EXEC", "*1"},
			{lock, ":"}, {"SELECT 5", "+OK"}, {unlock, ":1"}},
		"in MULTI": {{"MULTI", "+OK"}, {lock, "-ERR "}, {"SET k v", "+QUEUED"},
			{"EXEC", "-EXECABORT"}, {"EXISTS a k", ":0"}, {lock, ":"}, {unlock, ":1"}},
		"in MULTI, then drop": {{"MULTI", "+OK"}, {unlock, "-ERR "}, {"DISCARD", "+OK"},
			{lock, ":"}, {unlock, ":1"}},
		"RESET": {{"MULTI", "+OK"}, {"RESET", "+RESET"}, {lock, ":"}, {unlock, ":1"}},
		"a script": {{`EVAL "return redis.call('LOCK','a',10)" 0`, "-ERR"}, {lock, ":"},
			{unlock, ":1"}},
	}
	for name, steps := range both {
		t.Run(name, func(t *testing.T) {
			s.check(t, "2", steps)
			s.check(t, "3", steps)
		})
	}
	only2 := map[string][]diffWant{
		"subscribed": {
			{"SUBSCRIBE c", "*3"},
			{lock,
				"-ERR Can't execute 'lock': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT " +
					"/ RESET are allowed in this context\r\n"},
			{"UNSUBSCRIBE", "*3"}, {lock, ":"}, {unlock, ":1"},
		},
		"a waiting command": {{"BLPOP nosuch 0.02", "*-1"}, {lock, ":"},
			{"BLPOP nosuch 0.02", "*-1"}, {unlock, ":1"}},
		"subscribed in MULTI": {
			{"MULTI", "+OK"}, {"SUBSCRIBE c", "+QUEUED"}, {"EXEC", "*1"}, {lock, "-ERR "},
			{"PING", "*2"}, {"RESET", "+RESET"}, {lock, ":"}, {unlock, ":1"},
		},
	}
	for name, steps := range only2 {
		t.Run(name, func(t *testing.T) { s.check(t, "2", steps) })
	}
	only3 := map[string][]diffWant{
		"subscribed": {{"SUBSCRIBE c", ">3"}, {lock, ":"}, {unlock, ":1"},
			{"UNSUBSCRIBE", ">3"}},
		"a waiting command": {{"BLPOP nosuch 0.02", "_"}, {lock, ":"}, {"BLPOP nosuch 0.02", "_"},
			{unlock, ":1"}},
		"attribute": {{"DEBUG PROTOCOL attrib", "|1"}, {lock, ":"}, {unlock, ":1"}},
	}
	for name, steps := range only3 {
		t.Run(name, func(t *testing.T) { s.check(t, "3", steps) })
	}
}

// Redis lets no monitoring connection read or write keys, and ignores a second MONITOR.
func TestDifferentialMonitorAndLocks(t *testing.T) {
	s := newDiffSession(t)
	conn := s.open("2")
	conn.do("MONITOR")
	conn.send("MONITOR")
	conn.send("LOCK", "a", "600")
	conn.send("RESET")
	conn.send("LOCK", "a", "600")
	var errors, numbers int
	for numbers == 0 {
		switch reply := conn.reply(); {
		case diffIsError(reply):
			errors++
		case strings.HasPrefix(reply, ":"):
			numbers++
		case !strings.HasPrefix(reply, "+"):
			t.Fatalf("%q comes", reply)
		}
	}
	if errors != 1 {
		t.Errorf("%d errors, want the one for LOCK while monitoring", errors)
	}
}

// The upstream connection of a client that vanishes during a blocking command closes, so that no
// element is popped and lost, and nothing that it has sent behind that command runs.
func TestDifferentialVanished(t *testing.T) {
	t.Parallel()
	blpop := wire.Append(nil, "BLPOP", "q", "0")
	cases := []struct {
		name  string
		after []byte // pipelined after BLPOP
	}{
		{"blocked", nil},
		{"blocked, with more requests after it", wire.Append(nil, "SET", "k", "v")},
		{"blocked, with LOCK after it", wire.Append(nil, "LOCK", "a", "600")},
		{"blocked, with LOCK and more after it", append(wire.Append(nil, "LOCK", "a", "600"),
			wire.Append(nil, "SET", "k", "v")...)},
	}
	s := newDiffSession(t)
	for _, c := range cases {
		for _, reset := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, reset %v", c.name, reset), func(t *testing.T) {
				conn := s.open("2")
				conn.do("CLIENT", "SETNAME", "victim")
				conn.nc.Write(append(append([]byte{}, blpop...), c.after...))
				s.waitFor("INFO clients", "blocked_clients:1", false)
				if tcp, ok := conn.nc.(*net.TCPConn); ok && reset {
					tcp.SetLinger(0)
				}
				conn.nc.Close()
				s.waitFor("CLIENT LIST", "name=victim", true)
				s.direct.do("RPUSH", "q", "x")
				if got := s.direct.do("LPOP", "q"); got != "$1\r\nx\r\n" {
					t.Fatalf("the element is gone: %q", got)
				}
				if got := s.direct.do("EXISTS", "a", "k"); got != ":0\r\n" {
					t.Fatalf("the request after BLPOP ran without its client: %q keys", got)
				}
			})
		}
	}
}

// A replica syncs and follows through the proxy, and its acknowledgements come back.
func TestDifferentialReplica(t *testing.T) {
	s := newDiffSession(t, "--repl-diskless-sync-delay", "0")
	s.direct.do("DEBUG", "POPULATE", "20000", "key", "200")
	_, port, _ := strings.Cut(s.addr, ":")
	replica := testredis.Start(t, append(diffServerArgs[:len(diffServerArgs):len(diffServerArgs)],
		"--replicaof", "127.0.0.1 "+port)...)
	r := &diffSession{t: t, server: replica, direct: s.dial(replica.Addr())}
	r.waitFor("INFO replication", "master_link_status:up", false)
	through := s.open("2")
	for i := range 1000 {
		if reply := through.do("SET", fmt.Sprint("n", i), "v"); reply != "+OK\r\n" {
			t.Fatal(reply)
		}
	}
	if got := through.do("WAIT", "1", "0"); got != ":1\r\n" {
		t.Errorf("WAIT is answered %q", got)
	}
	if want, got := s.direct.do("DEBUG", "DIGEST"), r.direct.do("DEBUG", "DIGEST"); got != want {
		t.Errorf("the replica's digest is %q, the master's %q", got, want)
	}
	if got := through.do("LOCK", "a", "600"); !strings.HasPrefix(got, ":") {
		t.Errorf("LOCK: %q", got)
	}
	through.do("WAIT", "1", "0")
	if want, got := s.direct.do("GET", "a"), r.direct.do("GET", "a"); got != want {
		t.Errorf("the lock is %q at the replica, %q at the master", got, want)
	}
}

// A malformed is sent on a connection that does nothing else.
type malformed struct {
	text, answer string
	unanswered   bool // by the server that the tests run with, which leaves the connection open
}

// leavesErrors reports whether the server answers few errors of a request that comes in parts, as
// Redis 8.6 does.
func leavesErrors() bool { return !testredis.IsValkey() && testredis.Since(8, 6) }

func (m malformed) compare(t *testing.T, s *diffSession) {
	t.Helper()
	const closed = "\r\n(closed)"
	sides := map[string]string{"the proxy": s.addr}
	if !m.unanswered {
		sides["Redis"] = s.server.Addr()
	}
	for name, addr := range sides {
		conn := s.dial(addr)
		io.WriteString(conn.nc, m.text)
		if got := conn.rest(); got != m.answer+closed {
			t.Errorf("%.30q…: %s answers %q, not %q", m.text, name, got, m.answer)
		}
	}
}

// A line without an end is refused at one byte more than Redis's limit.
func TestDifferentialLongLines(t *testing.T) {
	s := newDiffSession(t)
	for _, m := range []malformed{
		{text: "PING", answer: "-ERR Protocol error: too big inline request"},
		{text: "*", answer: "-ERR Protocol error: too big mbulk count string"},
		{"*1\r\n$", "-ERR Protocol error: too big bulk count string", leavesErrors()},
	} {
		m.text += strings.Repeat("1", 64<<10+1-len(m.text)+strings.Count(m.text, "\r\n")*4)
		m.compare(t, s)
	}
}

// A request can prove malformed after the proxy has passed on its beginning.
func TestDifferentialErrorsWithinLargeRequests(t *testing.T) {
	s := newDiffSession(t)
	const expected = "-ERR Protocol error: expected '$', got 'x'"
	const invalid = "-ERR Protocol error: invalid bulk length"
	large := "$100000\r\n" + strings.Repeat("x", 100000) + "\r\n"
	for _, m := range []malformed{
		{"*3\r\n$3\r\nSET\r\n" + large + "x\r\n", expected, leavesErrors()},
		{"PING\r\n*3\r\n$3\r\nSET\r\n" + large + "$-1\r\n", "+PONG\r\n" + invalid,
			leavesErrors()},
		{"*3\r\n$9\r\nSUBSCRIBE\r\n" + large + "$x\r\n", invalid, leavesErrors()},
		{"MULTI\r\nPING\r\n*3\r\n$3\r\nSET\r\n" + large + "$" + strings.Repeat("1", 65536),
			"+OK\r\n+QUEUED\r\n-ERR Protocol error: too big bulk count string", leavesErrors()},
		{"*3\r\n$5\r\nBLPOP\r\n$6\r\nnosuch\r\n$4\r\n0.05\r\n" +
			"*3\r\n$3\r\nSET\r\n" + large + "x\r\n", "*-1\r\n" + expected,
			testredis.Since(7, 2)},
	} {
		m.compare(t, s)
	}
}

// Redis refuses long requests of clients that have not logged in when it reads the length. Through
// the proxy that happens when the request is complete or too long to be held.
func TestDifferentialUnauthenticatedLengths(t *testing.T) {
	s := newDiffSession(t, "--requirepass", "secret")
	for _, addr := range []string{s.server.Addr(), s.addr} {
		conn := s.dial(addr)
		io.WriteString(conn.nc, "*2\r\n$4\r\nECHO\r\n$16385\r\n"+strings.Repeat("x", 16385)+"\r\n")
		if got := conn.rest(); !strings.HasPrefix(got,
			"-ERR Protocol error: unauthenticated bulk length\r\n") {
			t.Errorf("%q comes", got)
		}
	}
}
