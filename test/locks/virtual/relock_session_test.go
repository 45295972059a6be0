//go:build !race

package virtual_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/virtualtest"
	"lockproxy/proxy"
)

// A session waits to be the only holder for much longer than its lock's timeout, whatever delays
// the answers to its renewals or wakes it: the lock is renewed all the time, and becomes exclusive.
func TestSessionWaitsToBeTheOnlyHolder(t *testing.T) {
	for _, c := range []struct {
		away     time.Duration // of Redis, one way
		confirms time.Duration // by the replicas; 0 is without
		others   string        // what others ask for all the time
	}{
		{away: time.Millisecond}, {away: 150 * time.Millisecond}, {away: 300 * time.Millisecond},
		{confirms: 300 * time.Millisecond},
		{away: 5 * time.Millisecond, others: "SET doc x NX PX 1000"},
		{away: 5 * time.Millisecond, others: "UNLOCK doc 12345"},
	} {
		virtualtest.Part(t, fmt.Sprintf("%+v", c), func(t *testing.T) {
			virtualtest.Run(t, func(t *testing.T) {
				store := virtualtest.StartStore(t)
				store.Answer(func(client *server.Peer, _ []string) {
					time.Sleep(c.confirms)
					client.WriteInt(1)
				}, "WAIT")
				link := proxytest.LinkTo(t, store)
				link.Away(c.away)
				change := func(*proxy.Config) {}
				if c.confirms > 0 {
					change = proxytest.WithSlowReplicas(1)
				}
				p := proxytest.Start(t, "redis://"+link.Addr(), change)
				a, b := proxytest.Dial(t, p.Addr),
					proxytest.Dial(t, proxytest.Start(t, store.URL(), nil).Addr)
				token, others := a.Lock("doc 5 SHARED SESSION"), b.Lock("doc 600 SHARED")
				time.Sleep(8 * time.Second)
				a.Send(relock("doc", token, "5 EXCLUSIVE WAIT 0"))
				if c.others == "" {
					time.Sleep(15 * time.Second)
				}
				wakes := proxytest.Dial(t, p.Addr)
				for i := 0; c.others != "" && i < 500; i++ { // each takes 10 ms
					time.Sleep(2 * time.Millisecond)
					wakes.Do(c.others)
				}
				if a.Arrived() {
					t.Fatalf("it has ended: %q", a.Reply())
				}
				b.Expect(proxytest.Unlock("doc", others), ":1\r\n")
				proxytest.Token(t, a.Reply())
			})
		})
	}
}

// MAX ends a session also while it asks to be the only holder, on a connection that is silent.
func TestMaxEndsASessionThatAsksToBeTheOnlyHolder(t *testing.T) {
	for _, command := range []string{"600 EXCLUSIVE", "600 EXCLUSIVE WAIT 0"} {
		virtualtest.Run(t, func(t *testing.T) {
			store := virtualtest.StartStore(t)
			link := proxytest.LinkTo(t, store)
			p := proxytest.Start(t, "redis://"+link.Addr(), nil)
			a, b := proxytest.Dial(t, p.Addr),
				proxytest.Dial(t, proxytest.Start(t, store.URL(), nil).Addr)
			token := a.Lock("doc 600 SHARED SESSION MAX 10")
			b.Expect("GET x", "$-1\r\n")
			link.Freeze()
			a.Send(relock("doc", token, command))
			time.Sleep(15 * time.Second)
			if b.Lock("doc 5"); !a.Arrived() {
				t.Errorf("%s: the session is not told", command)
			}
			link.Thaw()
		})
	}
}
