package sharing_test

import (
	"strings"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
)

// The proxy asks Redis twice a second at most whether it lets new clients in. A client that comes
// once the default user is switched off, and is let in by an older answer, does not stay.
func TestLetInByAnOlderAnswer(t *testing.T) {
	t.Parallel()
	t.Run("server", func(t *testing.T) {
		t.Parallel()
		server := testredis.Start(t)
		letInByAnOlderAnswer(t, sharing(t, server, 1), []*testredis.Server{server})
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		cluster := testredis.StartCluster(t, 3, 0)
		letInByAnOlderAnswer(t, proxytest.Start(t, cluster.URL(), nil), cluster.Nodes)
	})
}

func letInByAnOlderAnswer(t *testing.T, p *proxytest.Proxy, servers []*testredis.Server) {
	var admins []*proxytest.Conn
	for _, s := range servers {
		admins = append(admins, proxytest.Dial(t, s.Addr()))
	}
	everywhere := func(command string) {
		for _, admin := range admins {
			admin.Expect(command, "+OK\r\n")
		}
	}
	everywhere("ACL SETUSER ann on >pw ~* &* +@all")
	states := []string{"GET a", "CLIENT SETNAME me", "SUBSCRIBE c", "MULTI", "WATCH a", "CLIENT ID"}
	for letIn := map[string]bool{}; len(letIn) < len(states); {
		early := proxytest.Dial(t, p.Addr)
		early.Expect("SET a b", "+OK\r\n")
		everywhere("ACL SETUSER default off")
		clients := []*proxytest.Conn{early}
		for _, last := range states {
			if letIn[last] {
				continue
			}
			c := proxytest.Dial(t, p.Addr)
			if got := c.Do("GET a"); !strings.HasPrefix(got, "-NOAUTH") {
				letIn[last] = true
			}
			c.Do(last)
			clients = append(clients, c)
		}
		late := clients[1:]
		testwait.Until(t, "nobody stays who came too late", func() bool {
			// Others come meanwhile.
			new := proxytest.Dial(t, p.Addr)
			new.Do("GET a")
			new.Close()
			late = outsiders(late)
			return len(late) == 0
		})
		everywhere("ACL SETUSER default on")
		for _, c := range clients { // there can be many rounds
			c.Close()
		}
	}
}

// outsiders are the clients that are still served without a login. Subscribers are told nothing that
// they ask for, so they are until they are closed.
func outsiders(clients []*proxytest.Conn) (served []*proxytest.Conn) {
	for _, c := range clients {
		if _, err := c.Write([]byte("*1\r\n$4\r\nPING\r\n")); err != nil {
			continue
		}
		got, err := c.TryReply()
		for err == nil && strings.Contains(got, "subscribe") {
			got, err = c.TryReply()
		}
		if err == nil && !strings.HasPrefix(got, "-NOAUTH") {
			served = append(served, c)
		}
	}
	return served
}
