package real_test

// A client asks again with the same OWNER on another connection: the end of the first connection
// must not take the lock away.

import (
	"fmt"
	"testing"

	"lockproxy/internal/test/badlink"
	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
)

// owners is a Redis behind a link and two proxies, and a third proxy without the link.
type owners struct {
	server *testredis.Server
	link   *badlink.Link
	far    [2]*proxytest.Proxy
	near   *proxytest.Proxy
	others *proxytest.Conn // a client of near
}

func startOwners(t *testing.T) *owners {
	server := testredis.Start(t)
	o := &owners{server: server, link: testredis.StartLink(t, server.Addr()),
		near: proxytest.StartBy(t, testredis.TCP, server.URL(), nil)}
	for i := range o.far {
		o.far[i] = proxytest.StartBy(t, testredis.TCP, "redis://"+o.link.Addr(), nil)
		c := proxytest.SharedClient(t, o.far[i].Addr) // Redis knows the scripts now
		c.Lock(fmt.Sprintf("first:%d 300", i))
		c.Expect(fmt.Sprintf("UNLOCK first:%d", i), ":1\r\n")
	}
	o.others = proxytest.Dial(t, o.near.Addr)
	return o
}

// Two connections of an owner close without having read their tokens: no client has the lock, and
// it is free at once.
func TestOwnersUnreadTokensAreReleased(t *testing.T) {
	t.Parallel()
	o := startOwners(t)
	direct := proxytest.GoRedis(t, o.server.Addr())
	for i := range o.far {
		for _, how := range []string{"", " SESSION", " WAIT 300"} {
			key := fmt.Sprintf("job:%d:%s", i, how[min(1, len(how)):min(2, len(how))])
			at := []*proxytest.Proxy{o.far[0], o.far[i]}
			var clients []*proxytest.Conn
			for _, p := range at {
				clients = append(clients, proxytest.SharedClient(t, p.Addr))
			}
			left := 0
			for _, p := range o.far {
				left += p.Server.Stats().Clients
			}
			o.link.HoldReplies()
			scripts, _ := scriptCalls(t, direct)
			for _, c := range clients {
				c.Send("LOCK " + key + " 300" + how + " OWNER me")
			}
			testwait.Until(t, "Redis has been asked", func() bool {
				now, _ := scriptCalls(t, direct)
				return now > scripts
			})
			for _, c := range clients {
				c.Close()
			}
			o.link.Release()
			testwait.Until(t, "both have gone", func() bool {
				return o.far[0].Server.Stats().Clients+o.far[1].Server.Stats().Clients <= left-2
			})
			o.others.Lock(key + " 300 WAIT 300")
		}
	}
}
