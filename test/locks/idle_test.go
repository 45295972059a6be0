package locks_test

import (
	"context"
	"testing"
	"time"

	"lockproxy/internal/proxytest"
	"lockproxy/internal/testredis"
	"lockproxy/proxy"
)

// Redis disconnects idle clients. A client that waits for a lock, or has a session lock, is not
// idle. Any other that does nothing is disconnected, as without the proxy.
func TestWaitersAreNotIdle(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t, "--timeout", "12")
	p := proxytest.Start(t, server.URL(), func(cfg *proxy.Config) {
		cfg.Park, cfg.ParkKeys = 10*time.Minute, "*"
	})
	ctx, cancel := context.WithCancel(context.Background())
	checked := make(chan struct{})
	go func() { // ends with the test
		defer close(checked)
		p.Server.CheckUpstream(ctx)
	}()
	defer func() { cancel(); <-checked }()

	session, all, one, park := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr),
		proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	a := session.Lock("a 600 SESSION")
	proxytest.Dial(t, p.Addr).Expect("SET other me NX PX 600000", "+OK\r\n")
	one.Send("LOCK a 600 WAIT 0")
	proxytest.AwaitWaiters(t, p, "a", 1)
	second := proxytest.Dial(t, p.Addr)
	second.Send("LOCK a 600 WAIT 0")
	proxytest.AwaitWaiters(t, p, "a", 2)
	all.Send("LOCKALL 600 2 a b WAIT 0")
	proxytest.AwaitWaiters(t, p, "a", 3)
	park.Send("SET other you NX PX 600000")
	for range 2 { // each is idle for as long as Redis allows
		proxytest.Dial(t, p.Addr).Closed()
	}
	session.Expect(proxytest.Unlock("a", a), ":1\r\n")
	for _, c := range []*proxytest.Conn{one, second} {
		c.Expect(proxytest.Unlock("a", proxytest.Token(t, c.Reply())), ":1\r\n")
	}
	proxytest.Token(t, all.Reply())
	session.Expect("DEL other", ":1\r\n")
	park.WantReply("+OK\r\n")
}
