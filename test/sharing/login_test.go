package sharing_test

import (
	"fmt"
	"strings"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/proxy"
)

// By default the proxy, like Redis, continues to serve every connected client after a change of its
// password, even if all are busy at once.
func TestPasswordChangedWhileAllClientsAreBusy(t *testing.T) {
	const clients = 60
	for _, login := range []string{"AUTH ann old", ""} {
		server := testredis.Start(t)
		p := proxytest.Start(t, server.URL(), func(cfg *proxy.Config) {
			cfg.Dedicated = false
		})
		admin := proxytest.Dial(t, server.Addr())
		admin.Expect("ACL SETUSER ann on >old ~* &* +@all", "+OK\r\n")
		var all []*proxytest.Conn
		for range clients {
			c := proxytest.Dial(t, p.Addr)
			if login != "" {
				c.Expect(login, "+OK\r\n")
			}
			c.Expect("GET a", "$-1\r\n")
			c.Expect("CLIENT GETNAME", "$-1\r\n") // opens its home, which it would not get later
			all = append(all, c)
		}
		proxytest.AwaitJudged(t, p)
		admin.Expect("ACL SETUSER ann resetpass >new", "+OK\r\n")
		admin.Expect("CONFIG SET requirepass new", "+OK\r\n")
		for i, c := range all {
			switch i % 4 {
			case 0:
				c.Expect("SUBSCRIBE c", "*3…")
			case 1:
				c.Expect("MULTI", "+OK\r\n")
				c.Expect("ECHO a", "+QUEUED\r\n")
			case 2:
				c.Send(fmt.Sprintf("BLPOP l%d 0", i))
			case 3:
				c.Expect("SELECT 2", "+OK\r\n")
				c.Expect("CLIENT ID", ":…")
			}
		}
		testwait.Until(t, "all are blocked", func() bool {
			return strings.Count(admin.Do("CLIENT LIST"), "cmd=blpop") == clients/4
		})
		for i, c := range all {
			switch i % 4 {
			case 0:
				c.Expect("UNSUBSCRIBE c", "*3…")
			case 1:
				c.Expect("EXEC", "*1\r\n$1\r\na\r\n")
			case 2:
				admin.Do(fmt.Sprintf("RPUSH l%d x", i))
				c.Reply()
			}
			c.Expect("GET a", "$-1\r\n")
		}
	}
}

// A client that came before there was a password is not asked for one, even if it has sent nothing
// yet; a later client is. Where clients share connections, it is asked when it needs its own, unless
// one is there that was opened before, too.
func TestConnectedBeforeThereWasAPassword(t *testing.T) {
	for _, dedicated := range []bool{false, true} {
		server := testredis.Start(t)
		p := proxytest.Start(t, server.URL(), func(cfg *proxy.Config) { cfg.Dedicated = dedicated })
		admin := proxytest.Dial(t, server.Addr())
		direct, through := proxytest.Dial(t, server.Addr()), proxytest.Dial(t, p.Addr)
		testwait.Until(t, "the client is connected", func() bool {
			st := p.Server.Stats()
			return st.Clients == 1 && (!dedicated || st.Connections.Homes == 1)
		})
		if !dedicated {
			proxytest.AwaitJudged(t, p)
		}
		admin.Expect("CONFIG SET requirepass new", "+OK\r\n")
		if !dedicated {
			proxytest.AwaitJudged(t, p)
		}
		laterDirect, laterThrough := proxytest.Dial(t, server.Addr()), proxytest.Dial(t, p.Addr)
		commands := []string{"GET a", "SET a b", "GET b"}
		if dedicated {
			commands = []string{"GET a", "HELLO 3", "MULTI", "PING", "EXEC", "ACL WHOAMI"}
		} else {
			defer func() {
				got := through.Do("MULTI")
				if got != "+OK\r\n" && !strings.HasPrefix(got, "-NOAUTH ") {
					t.Errorf("MULTI: got %q", got)
				}
			}()
		}
		for _, command := range commands {
			if want, got := shown(command, direct.Do(command)),
				shown(command, through.Do(command)); got != want || got[0] == '-' {
				t.Errorf("dedicated %v, %s: got %q, want %q", dedicated, command, got, want)
			}
			if want, got := shown(command, laterDirect.Do(command)),
				shown(command, laterThrough.Do(command)); got != want || got[0] != '-' {
				t.Errorf("dedicated %v, a later client, %s: got %q, want %q", dedicated, command,
					got, want)
			}
		}
	}
}

// A login waits for an upstream that takes long to answer.
func TestLoginAtASlowUpstream(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t, "--timeout", "300")
	p := proxytest.Start(t, server.URL(), func(cfg *proxy.Config) { cfg.Dedicated = false })
	admin := proxytest.Dial(t, server.Addr())
	watchLimits(t, p, admin)
	admin.Expect("ACL SETUSER ann on >old ~* &* +@all", "+OK\r\n")
	clients := []*proxytest.Conn{proxytest.Dial(t, server.Addr()), proxytest.Dial(t, p.Addr)}
	for _, c := range clients {
		c.Expect("AUTH ann old", "+OK\r\n")
	}
	admin.Expect("ACL SETUSER ann resetpass >new", "+OK\r\n")
	server.Pause()
	read := p.Server.Stats().BytesIn
	for _, c := range clients {
		c.Send("PING", "SUBSCRIBE c")
	}
	testwait.Until(t, "the proxy has read that", func() bool {
		return p.Server.Stats().BytesIn > read
	})
	server.Resume()
	for _, c := range clients {
		c.WantReply("+PONG\r\n")
		c.WantReply("*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n")
	}
}

// A client that is not logged in again after its RESET, since the password of the URL does not hold
// any more, is not served as the user of a connection without a login.
func TestResetWhoseLoginFails(t *testing.T) {
	s := testredis.Start(t)
	s.Ask("ACL", "SETUSER", "url", "on", ">pw", "~u:*", "+@all")
	p := proxytest.Start(t, strings.Replace(s.URL(), "://", "://url:pw@", 1), nil)
	k := proxytest.Dial(t, p.Addr)
	k.Expect("GET u:1", "$-1\r\n")
	k.Expect("GET other", "-NOPERM …")
	k.Expect("WATCH u:1", "+OK\r\n") // by its home, which it keeps; a new one would be refused
	s.Ask("ACL", "SETUSER", "url", "resetpass", ">new")
	k.Send("RESET", "GET other", "GET u:1")
	k.WantReply("+RESET\r\n")
	for {
		reply, err := k.TryReply()
		if err != nil {
			return
		}
		if !strings.HasPrefix(reply, "-UPSTREAM") {
			t.Fatalf("%q", reply)
		}
	}
}
