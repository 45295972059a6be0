//go:build !race

package virtual_test

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/virtualtest"
	"lockproxy/proxy"
)

// Redis closes idle connections: not that of a client that waits for a lock, in whichever way, or
// has one as long as it is connected, since something is sent there in time. A client that only has
// a connection of its own is as idle as it is.
func TestWaitersAreNotIdle(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		const timeout = 12 * time.Second
		store := virtualtest.StartStore(t)
		store.Answer(func(client *server.Peer, args []string) { // CONFIG GET name
			value := ""
			if args[1] == "timeout" {
				value = strconv.Itoa(int(timeout.Seconds()))
			}
			client.WriteStrings([]string{args[1], value})
		}, "CONFIG")
		var mu sync.Mutex
		asked := map[string][]time.Time{} // by the client's name
		store.Answer(func(client *server.Peer, _ []string) {
			mu.Lock()
			defer mu.Unlock()
			now := time.Now()
			asked[client.ClientName] = append(asked[client.ClientName], now)
			client.WriteStrings([]string{strconv.FormatInt(now.Unix(), 10),
				strconv.Itoa(now.Nanosecond() / 1000)})
		}, "TIME")
		p := proxytest.Start(t, store.URL(), func(cfg *proxy.Config) {
			cfg.Park, cfg.ParkKeys = 10*time.Minute, "*"
		})
		ctx, cancel := context.WithCancel(context.Background())
		var checked sync.WaitGroup
		checked.Go(func() { p.Server.CheckUpstream(ctx) }) // ends with ctx
		defer checked.Wait()
		defer cancel()

		named := func(name string) *proxytest.Conn {
			c := proxytest.Dial(t, p.Addr)
			c.Expect("CLIENT SETNAME "+name, "+OK\r\n")
			return c
		}
		session, one, second, all, park := named("session"), named("one"), named("second"),
			named("all"), named("park")
		named("idle")
		a := session.Lock("a 600 SESSION")
		proxytest.Dial(t, p.Addr).Expect("SET other me NX PX 600000", "+OK\r\n")
		one.Send("LOCK a 600 WAIT 0")
		proxytest.AwaitWaiters(t, p, "a", 1)
		second.Send("LOCK a 600 WAIT 0")
		proxytest.AwaitWaiters(t, p, "a", 2)
		all.Send("LOCKALL 600 2 a b WAIT 0")
		proxytest.AwaitWaiters(t, p, "a", 3)
		park.Send("SET other you NX PX 600000")
		from := time.Now()
		time.Sleep(time.Minute)
		mu.Lock()
		for name, kept := range map[string]bool{"session": true, "one": true, "second": true,
			"all": true, "park": true, "idle": false} {
			last, late := from, false
			for _, at := range append(asked[name], time.Now()) {
				late = late || at.Sub(last) >= timeout
				last = at
			}
			if late == kept {
				t.Errorf("%s is asked for the time at %v, from %v on", name, asked[name], from)
			}
		}
		mu.Unlock()
		session.Expect(proxytest.Unlock("a", a), ":1\r\n")
		for _, c := range []*proxytest.Conn{one, second} {
			c.Expect(proxytest.Unlock("a", proxytest.Token(t, c.Reply())), ":1\r\n")
		}
		proxytest.Token(t, all.Reply())
		session.Expect("DEL other", ":1\r\n")
		park.WantReply("+OK\r\n")
	})
}
