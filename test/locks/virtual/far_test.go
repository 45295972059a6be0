//go:build !race

package virtual_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/virtualtest"
	"lockproxy/proxy"
)

// withoutHomes makes clients give up the connections of their own soon after they last needed them.
func withoutHomes(cfg *proxy.Config) { cfg.HomeIdle = time.Second }

// startFar starts a store, and a proxy to which that is a round trip away.
func startFar(t *testing.T, roundTrip time.Duration) (*virtualtest.Store, *proxytest.Proxy) {
	store := virtualtest.StartStore(t)
	link := proxytest.LinkTo(t, store)
	link.Away(roundTrip / 2)
	return store, proxytest.Start(t, "redis://"+link.Addr(), withoutHomes)
}

// However far away Redis is, clients that share a connection are answered within a round trip, and
// share it further: an answer that is due for as long as it takes does not make it look silent.
func TestFarLanesAreKept(t *testing.T) {
	for _, roundTrip := range []time.Duration{20, 200, 1000} {
		roundTrip *= time.Millisecond
		virtualtest.Run(t, func(t *testing.T) {
			store, p := startFar(t, roundTrip)
			const clients, asks = 12, 20
			var asking sync.WaitGroup
			start := time.Now()
			opened := 0
			for i := range clients {
				c := proxytest.Dial(t, p.Addr)
				asking.Go(func() {
					// The first ask while it is not known how far Redis is.
					for n := range asks {
						time.Sleep(time.Until(start.Add(
							time.Duration(n)*10*roundTrip + time.Duration(i)*roundTrip*3/4)))
						if n == asks/2 && i == 0 {
							opened = store.Calls("INFO")
						}
						asked := time.Now()
						c.Expect(fmt.Sprintf("GET key-%d", i), "$-1\r\n")
						if took := time.Since(asked); n >= asks/2 && took != roundTrip {
							t.Errorf("%v: client %d is answered after %v", roundTrip, i, took)
						}
					}
				})
			}
			asking.Wait()
			if n := store.Calls("INFO") - opened; n > 0 {
				t.Errorf("%v: %d more connections were opened", roundTrip, n)
			}
		})
	}
}

// However far away Redis is, clients that come one after another go by a lane, and none is given a
// connection of its own for want of Redis's word that it lets them in.
func TestFarClientsNeedNoHomes(t *testing.T) {
	for _, roundTrip := range []time.Duration{20, 200, 1000} {
		roundTrip *= time.Millisecond
		virtualtest.Run(t, func(t *testing.T) {
			_, p := startFar(t, roundTrip)
			for range 2 { // a lane is opened for several
				proxytest.Dial(t, p.Addr).Expect("GET key", "$-1\r\n")
			}
			time.Sleep(10 * roundTrip)
			before := p.Server.Stats().Connections.Opened
			for i := range 20 {
				// Sometimes Redis must be asked again whether it lets new clients in.
				time.Sleep(time.Duration(i%4) * 400 * time.Millisecond)
				proxytest.Dial(t, p.Addr).Expect("GET key", "$-1\r\n")
			}
			if n := p.Server.Stats().Connections.Opened - before; n > 0 {
				t.Errorf("%v: %d of 20 clients had a connection of their own", roundTrip, n)
			}
		})
	}
}

// A waiter at a far proxy gets the lock before one that came later to a near proxy, whatever else is
// asked there at the same time: its poll is answered within a round trip, for which the lock is
// reserved.
func TestFarWaiterKeepsItsTurn(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		store := virtualtest.StartStore(t)
		var proxies []*proxytest.Proxy
		for _, away := range []time.Duration{100, 10} {
			link := proxytest.LinkTo(t, store)
			link.Away(away * time.Millisecond)
			proxies = append(proxies, proxytest.Start(t, "redis://"+link.Addr(), withoutHomes))
		}
		other, holder := proxytest.Dial(t, proxies[0].Addr), proxytest.Dial(t, proxies[1].Addr)
		var waiters []*proxytest.Conn
		for _, p := range proxies {
			waiters = append(waiters, proxytest.Dial(t, p.Addr))
		}
		for round := range 20 {
			holder.Lock("job 600")
			order := make(chan int, len(waiters))
			var waiting sync.WaitGroup
			for i, w := range waiters {
				w.Send("LOCK job 600 WAIT 0")
				time.Sleep(2 * time.Second) // now it is listed, and its client needs no home
				waiting.Go(func() {
					w.Reply()
					order <- i
					w.Expect("UNLOCK job", ":1\r\n")
				})
			}
			time.Sleep(time.Duration(round) * 22 * time.Millisecond) // somewhere between two polls
			other.Send("GET other")
			time.Sleep(40 * time.Millisecond) // unanswered when the release is heard of
			holder.Expect("UNLOCK job", ":1\r\n")
			if waiting.Wait(); <-order != 0 {
				t.Errorf("round %d: the later one had the lock first", round)
			}
			other.Reply()
		}
	})
}
