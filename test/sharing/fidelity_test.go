package sharing_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/test/badlink"
	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/proxy"
)

// A SETNX of a client that is not admitted does not make it a foreign client that competes for the
// lock; that of an admitted one does, even as its first request.
func TestUnadmittedClientsDoNotCompete(t *testing.T) {
	server := testredis.Start(t)
	p := sharing(t, server, 1)
	admin := proxytest.Dial(t, server.Addr())
	admin.Expect("CONFIG SET requirepass secret", "+OK\r\n")
	for _, round := range []struct {
		key, login string
		handed     int64
	}{{"one", "", 1}, {"two", "AUTH secret\r\n", 0}} {
		holder, waiter, foreign := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr),
			proxytest.Dial(t, p.Addr)
		holder.Expect("AUTH secret", "+OK\r\n")
		waiter.Expect("AUTH secret", "+OK\r\n")
		token := holder.Lock(round.key + " 600")
		waiter.Send("LOCK " + round.key + " 600 WAIT 0")
		testwait.Until(t, "one client waits", func() bool {
			return p.Server.Stats().Locks.Waiters == 1
		})
		before := p.Server.Stats().Locks.HandedOver
		foreign.WriteRaw(round.login + "SETNX " + round.key + " x\r\n")
		foreign.Reply()
		if round.login != "" {
			if got := foreign.Reply(); got != ":0\r\n" {
				t.Errorf("SETNX: %q", got)
			}
		}
		holder.Expect(proxytest.Unlock(round.key, token), ":1\r\n")
		if got := waiter.Reply(); got[0] != ':' {
			t.Fatalf("the waiter: %q", got)
		}
		if handed := int64(p.Server.Stats().Locks.HandedOver - before); handed != round.handed {
			t.Errorf("%s: %d hand-overs, want %d", round.key, handed, round.handed)
		}
	}
}

// A refused FENCE leaves the client's next transaction alone, even if its user may not UNWATCH.
func TestFenceWithoutUnwatch(t *testing.T) {
	server := testredis.Start(t)
	p := sharing(t, server, 1)
	admin := proxytest.Dial(t, server.Addr())
	admin.Expect("ACL SETUSER u on >p ~* &* +@all -unwatch", "+OK\r\n")
	c := proxytest.Dial(t, p.Addr)
	c.Expect("AUTH u p", "+OK\r\n")
	c.Lock("job 600")
	c.Expect("FENCE job 5 SET x y", "-FENCED…")
	admin.Expect("DEL job", ":1\r\n")
	c.Expect("MULTI", "+OK\r\n")
	c.Expect("ECHO a", "+QUEUED\r\n")
	c.Expect("EXEC", "*1\r\n$1\r\na\r\n")
}

// A command unknown to the proxy takes the client's own connection, within FENCE too, unless the
// upstream doesn't know it either.
func TestFenceWithUnknownCommand(t *testing.T) {
	server := testredis.Start(t)
	p := sharing(t, server, 1)
	c := proxytest.SharedClient(t, p.Addr)
	token := c.Lock("job 600")
	c.Expect(fmt.Sprintf("FENCE job %d NOSUCHCOMMAND", token), "-ERR unknown command…")
	c.Expect("GET a", "$-1\r\n")
	testwait.Until(t, "it uses a lane", func() bool {
		c.Expect("GET a", "$-1\r\n")
		return p.Server.Stats().Connections.Shared == 1
	})
	c.Expect(fmt.Sprintf("FENCE job %d PFSELFTEST", token), "+OK\r\n") // for Redis's own tests
	for range 3 {
		c.Expect("GET a", "$-1\r\n")
	}
	if st := p.Server.Stats().Connections; st.Shared != 0 {
		t.Errorf("%+v, want it to stay at its home", st)
	}
}

// A client that works by a lane is told when what the proxy answers needs its own connection, and
// that cannot be opened. By the lane Redis would answer as if there were no lock commands.
func TestAnswersWithoutAHome(t *testing.T) {
	server := testredis.Start(t)
	link := proxytest.LinkTo(t, server)
	p := proxytest.Start(t, "redis://"+link.Addr(), func(cfg *proxy.Config) {
		cfg.Dedicated, cfg.UpstreamConns, cfg.HomeIdle = false, 1, time.Millisecond
	})
	proxytest.OpenLane(t, p.Addr, "SELECT 1")
	c := proxytest.Dial(t, p.Addr)
	c.Expect("SELECT 1", "+OK\r\n")
	hasHome := func() bool {
		c.Expect("GET a", "$-1\r\n")
		return p.Server.Stats().Connections.Homes > 0
	}
	testwait.Until(t, "it has no home", func() bool { return !hasHome() })
	link.Set(badlink.State{Refuse: true})
	admin := proxytest.Dial(t, server.Addr())
	for _, command := range []string{"COMMAND INFO lock", "COMMAND COUNT", "INFO lockproxy"} {
		testwait.Until(t, "it is refused", func() bool {
			if hasHome() { // one that was being opened for a client to come
				return false
			}
			for id, line := range clientList(admin) {
				if field(line, "cmd") != "get" {
					admin.Do("CLIENT KILL ID " + id)
				}
			}
			return strings.HasPrefix(c.Do(command), "-UPSTREAM")
		})
	}
	c.Expect("GET a", "$-1\r\n")
	link.Set(badlink.State{})
	c.Expect("COMMAND INFO lock", "*1\r\n*…")
}
