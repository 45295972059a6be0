//go:build !race

package relay_test

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/proxy"
)

// stateCommands change the state of a connection, are refused, or show it. The key k is what
// clients watch. Commands that are listed several times are more likely at random.
var stateCommands = []string{
	"WATCH k", "WATCH k", "WATCH k", "WATCH", "UNWATCH", "UNWATCH x", "MULTI", "MULTI", "MULTI",
	"MULTI x", "EXEC", "EXEC", "EXEC", "EXEC x",
	"DISCARD", "DISCARD x", "SET k 1", "SET k 2", "SET k 3", "GET k", "GET k", "PING", "PING",
	"NOSUCHCOMMAND", "GET", "LPUSH k x",
	"SELECT 0", "SELECT 1", "SELECT 99", "SELECT x", "SELECT",
	"AUTH bob b", "AUTH bob wrong", "AUTH default x", "AUTH a b c", "AUTH poor p",
	"HELLO 2", "HELLO 3", "HELLO 4", "HELLO x", "HELLO 3 AUTH bob b", "HELLO 3 AUTH bob wrong",
	"HELLO 4 AUTH bob b", "HELLO 2 AUTH default x",
	"HELLO 3 SETNAME name BAD", "HELLO 3 AUTH bob b BAD", "HELLO 3 AUTH bob",
	"RESET", "RESET x", "SUBSCRIBE c", "UNSUBSCRIBE c", "PSUBSCRIBE", "PUNSUBSCRIBE x y",
	"CLIENT REPLY", "CLIENT REPLY x", "CLIENT REPLY ON", "CLIENT SETNAME n", "CLIENT SETNAME n\nm",
	"CLIENT GETNAME",
	"CLIENT TRACKING ON", "CLIENT TRACKING OFF", "CLIENT TRACKING x",
	"CLIENT TRACKING ON REDIRECT 999999", "CLIENT TRACKING ON PREFIX p",
	"CLIENT NOSUCH", "ACL WHOAMI", "ACL WHOAMI", "CLIENT CACHING YES",
}

// connectionID is the connection's id in HELLO's reply.
var connectionID = regexp.MustCompile(`\$2\r\nid\r\n:\d+`)

// After errors of all kinds connections are in the same state as with Redis: those of the clients
// that got the errors, and those of later clients. Clients take turns, leave, and come back.
func TestDifferentialStateAfterErrors(t *testing.T) {
	t.Parallel()
	// A part is every state and some of the commands, each with servers of its own.
	const parts, random = 3, 25
	commands := slices.Compact(slices.Clone(stateCommands))
	unanswered := isUnanswered(t)
	for part := range parts {
		t.Run(fmt.Sprintf("part %d", part), func(t *testing.T) {
			t.Parallel()
			addrs := stateServers(t, proxytest.Dedicated)
			for i, before := range statesBefore {
				for at := (part + i) % parts; at < len(commands); at += parts {
					if slices.Contains(before, "MULTI") && unanswered(commands[at]) {
						continue
					}
					talk := newStateTalk(t, addrs...)
					talk.after(before, commands[at])
					talk.end(fmt.Sprintf("%q, then %s", before, commands[at]))
				}
			}
		})
	}
	often := slices.DeleteFunc(slices.Clone(stateCommands), unanswered)
	for _, alone := range []bool{false, true} {
		t.Run(fmt.Sprintf("at random, dedicated %v", alone), func(t *testing.T) {
			t.Parallel()
			addrs := stateServers(t, alone)
			for range random {
				seed := rand.Uint64()
				talk := newStateTalk(t, addrs...)
				talk.atRandom(rand.New(rand.NewPCG(seed, 0)), often)
				talk.end(fmt.Sprintf("at random from seed %d", seed))
			}
		})
	}
}

// isUnanswered says which commands Redis does not answer within EXEC. Redis as of 7.2 and Valkey do
// not say there that they refuse a login: see TestRefusedLoginWithinMulti.
func isUnanswered(t *testing.T) func(command string) bool {
	admin := proxytest.Dial(t, testredis.Start(t).Addr())
	admin.Send("MULTI", "AUTH bob wrong", "EXEC", "ECHO end")
	answers := strings.Contains(admin.Until("$3\r\nend\r\n"), "WRONGPASS")
	return func(command string) bool {
		return !answers && strings.HasSuffix(command, "AUTH bob wrong")
	}
}

// stateServers are a Redis, and a proxy in front of another.
func stateServers(t *testing.T, alone bool) (addrs []string) {
	direct, behind := testredis.Start(t), testredis.Start(t)
	p := proxytest.Start(t, behind.URL(), func(cfg *proxy.Config) {
		cfg.Dedicated, cfg.UpstreamConns = alone, 1
	})
	for _, server := range []*testredis.Server{direct, behind} {
		admin := proxytest.Dial(t, server.Addr())
		admin.Expect("ACL SETUSER bob on >b ~* &* +@all", "+OK\r\n")
		admin.Expect("ACL SETUSER poor on >p ~* &* +@all -exec -unwatch -discard -select "+
			"-client|setname", "+OK\r\n")
	}
	return []string{direct.Addr(), p.Addr}
}

// statesBefore are ways to give a connection state.
var statesBefore = [][]string{
	{}, {"WATCH k"}, {"MULTI", "SET k 5"}, {"WATCH k", "MULTI", "SET k 5"},
	{"WATCH k", "MULTI", "NOSUCHCOMMAND"}, {"SELECT 1", "WATCH k"},
	{"AUTH bob b", "WATCH k"}, {"AUTH poor p", "WATCH k"},
	{"AUTH poor p", "WATCH k", "MULTI", "SET k 5"}, {"HELLO 3", "WATCH k"},
	{"HELLO 3", "CLIENT TRACKING ON", "GET k"}, {"SUBSCRIBE c"},
	{"WATCH k", "HELLO 3", "SUBSCRIBE c"}, {"CLIENT SETNAME first", "WATCH k", "UNWATCH"},
	{"MULTI", "UNSUBSCRIBE c", "EXEC"},
}

// stateTalk is one conversation of three clients with a Redis, and with another through the proxy.
type stateTalk struct {
	t       *testing.T
	addrs   []string
	clients [3][2]*diffConn
	said    strings.Builder
	differs bool
}

func newStateTalk(t *testing.T, addrs ...string) *stateTalk {
	s := &stateTalk{t: t, addrs: addrs}
	for i := range s.clients {
		s.connect(i)
	}
	return s
}

// connect replaces a client by a new one.
func (s *stateTalk) connect(i int) {
	s.t.Helper()
	for j, addr := range s.addrs {
		if s.clients[i][j] != nil {
			s.clients[i][j].nc.Close()
		}
		c, err := diffDial(addr)
		if err != nil {
			s.t.Fatal(err)
		}
		s.clients[i][j] = c
	}
	fmt.Fprintf(&s.said, "%d comes\n", i)
}

// say sends commands of one client to both, unless they have differed already.
func (s *stateTalk) say(i int, commands ...string) {
	for _, command := range commands {
		if s.differs {
			return
		}
		var replies [2]string
		for j := range s.addrs {
			s.clients[i][j].send(strings.Split(command, " ")...)
		}
		for j := range s.addrs {
			replies[j] = connectionID.ReplaceAllString(s.clients[i][j].reply(), "id")
		}
		fmt.Fprintf(&s.said, "%d: %q -> %q\n", i, command, replies[0])
		if s.differs = replies[0] != replies[1]; s.differs {
			fmt.Fprintf(&s.said, "   through the proxy %q\n", replies[1])
		}
	}
}

func (s *stateTalk) end(name string) {
	s.t.Helper()
	for _, both := range s.clients {
		both[0].nc.Close()
		both[1].nc.Close()
	}
	if s.differs {
		s.t.Errorf("%s:\n%s", name, s.said.String())
	}
}

// after: one client sets up a state and sends command, another changes the watched key, and a third
// and both begin transactions.
func (s *stateTalk) after(before []string, command string) {
	for i := range s.clients {
		s.say(i, "PING") // they can share connections now
	}
	s.say(0, before...)
	s.say(0, command)
	s.say(1, "SET k 9", "SELECT 1", "SET k 9")
	s.say(2, "MULTI", "PING", "EXEC")
	s.say(1, "MULTI", "PING", "EXEC")
	s.say(0, "MULTI", "SET k 7", "EXEC", "GET k", "ACL WHOAMI", "CLIENT GETNAME", "DISCARD")
	s.connect(0)
	s.say(1, "SET k 8")
	s.say(0, "PING", "MULTI", "PING", "EXEC", "ACL WHOAMI", "CLIENT GETNAME")
}

func (s *stateTalk) atRandom(random *rand.Rand, commands []string) {
	for range 30 {
		i := random.IntN(len(s.clients))
		if random.IntN(20) == 0 {
			s.connect(i)
		}
		command := commands[random.IntN(len(commands))]
		// Two replies: from then on the clients would not speak in turns.
		s.say(i, strings.Replace(command, "PUNSUBSCRIBE x y", "PUNSUBSCRIBE x", 1))
	}
	s.connect(0)
	s.say(0, "PING", "MULTI")
	s.say(1, "PING")
	s.say(0, "PING", "EXEC")
}
