package sharing_test

import (
	"strconv"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/wire"
)

// What lies between the proxy and Redis cuts connections that are silent for long. A client that
// works by a lane, whose home is silent, stays, whether it has logged in or not, and gets another
// home when it needs one.
func TestSilentHomesAreCut(t *testing.T) {
	server := testredis.Start(t)
	p := sharing(t, server, 1)
	admin := proxytest.Dial(t, server.Addr())
	admin.Expect("ACL SETUSER ann on >pw ~* &* +@all", "+OK\r\n")
	proxytest.OpenLane(t, p.Addr, "AUTH ann pw")
	clients := []*proxytest.Conn{proxytest.SharedClient(t, p.Addr), proxytest.Dial(t, p.Addr)}
	clients[1].Expect("AUTH ann pw", "+OK\r\n")
	for _, c := range clients {
		c.Expect("UNWATCH", "+OK\r\n") // by its home, as what follows then
		c.Expect("CLIENT SETNAME me", "+OK\r\n")
		c.Expect("PING", "+PONG\r\n") // its home says which server it leads to
	}
	silent := func() (ids []string) {
		for id, line := range clientList(admin) {
			idle, _ := strconv.Atoi(field(line, "idle"))
			if idle >= 2 && field(line, "name") == "me" {
				ids = append(ids, id)
			}
		}
		return ids
	}
	testwait.Until(t, "only the lanes are used", func() bool {
		for _, c := range clients {
			c.Expect("SET a b", "+OK\r\n")
		}
		return len(silent()) == 2
	})
	for _, id := range silent() {
		admin.Expect("CLIENT KILL ID "+id, ":1\r\n")
	}
	testwait.Until(t, "the homes are lost", func() bool {
		return p.Server.Stats().Connections.Homes == 0
	})
	for _, c := range clients {
		c.Expect("SET a b", "+OK\r\n")
		c.Expect("MULTI", "+OK\r\n")
		c.Expect("INCR n", "+QUEUED\r\n")
		c.Expect("EXEC", "*1\r\n:…")
	}
	clients[1].Expect("ACL WHOAMI", wire.Bulk("ann"))
	clients[1].Expect("CLIENT GETNAME", wire.Bulk("me"))
}
