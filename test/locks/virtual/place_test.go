//go:build !race

package virtual_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/virtualtest"
	"lockproxy/proxy"
)

// Clients with a place get the lock in order of arrival among those that wait, though they ask only
// now and then. Without a name a place is a connection's, with one an owner's.
func TestPlacesInLine(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		withTwo(t, func(t *testing.T, dial func(int) *proxytest.Conn) {
			a, x, other, owner, last := dial(0), dial(0), dial(0), dial(0), dial(0)
			held := a.Lock("job 60")
			const ask, owned = "LOCK job 30 PLACE 5", "LOCK job 30 PLACE 5 OWNER me NOTE why"
			x.Expect(ask, "$-1\r\n")
			time.Sleep(time.Second)
			owner.Expect(owned, "$-1\r\n")
			time.Sleep(time.Second)
			last.Send("LOCK job 30 WAIT 0")
			time.Sleep(time.Second)
			if got := a.Do("LOCKINFO job"); !strings.Contains(got, "waiters\r\n:3\r\n") {
				t.Errorf("two places and a waiter: %q", got)
			}
			for range 5 { // each ask keeps the place, and the lock is not taken meanwhile
				x.Expect(ask, "$-1\r\n")
				other.Expect(owned, "$-1\r\n")
				time.Sleep(3 * time.Second)
			}
			a.Expect("UNLOCK job", ":1\r\n")
			time.Sleep(time.Second)
			a.Expect("LOCK job 30", "$-1\r\n")
			owner.Expect(owned, "$-1\r\n")
			first := proxytest.Token(t, x.Do(ask))
			if first <= held {
				t.Errorf("token %d after %d", first, held)
			}
			info := x.Do("LOCKINFO job")
			for _, want := range []string{fmt.Sprintf("token\r\n:%d\r\n", first),
				x.LocalAddr().String(), "remaining_ms\r\n:30000\r\n"} {
				if !strings.Contains(info, want) {
					t.Errorf("%q is not in %q", want, info)
				}
			}
			x.Expect(ask, "$-1\r\n") // a new place, behind the others
			x.Expect("UNLOCK job", ":1\r\n")
			second := proxytest.Token(t, other.Do(owned))
			if again := other.Lock("job 30 OWNER me"); again != second {
				t.Errorf("its owner has the token %d, and was given %d", second, again)
			}
			other.Expect("UNLOCK job", ":1\r\n")
			third := proxytest.Token(t, last.Reply())
			x.Expect(ask, "$-1\r\n")
			last.Expect("UNLOCK job", ":1\r\n")
			if fourth := proxytest.Token(t, x.Do(ask)); !(first < second && second < third &&
				third < fourth) {
				t.Errorf("tokens %d %d %d %d", first, second, third, fourth)
			}
			x.Expect("UNLOCK job", ":1\r\n")
		})
	})
}

// Nobody waits longer for places that nobody takes than these are kept, here and at another proxy,
// also if the lock's holder expires. A place that is over is none.
func TestPlacesThatNobodyTakes(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		withTwo(t, func(t *testing.T, dial func(int) *proxytest.Conn) {
			a, x, y, near, far := dial(0), dial(0), dial(1), dial(0), dial(1)
			for _, expires := range []bool{false, true} {
				a.Lock("job 10")
				x.Expect("LOCK job 30 PLACE 9", "$-1\r\n")
				time.Sleep(time.Second)
				y.Expect("LOCK job 30 PLACE 7 OWNER me", "$-1\r\n")
				time.Sleep(time.Second)
				near.Send("LOCK job 30 WAIT 0")
				time.Sleep(time.Millisecond) // otherwise the other can come first
				far.Send("LOCK job 30 WAIT 0")
				asked := time.Now()
				x.Expect("LOCK job 30 PLACE 9", "$-1\r\n")
				y.Expect("LOCK job 30 PLACE 7 OWNER me", "$-1\r\n")
				if !expires {
					time.Sleep(time.Second)
					a.Expect("UNLOCK job", ":1\r\n")
				}
				proxytest.Token(t, near.Reply())
				if took := time.Since(asked); took > 10*time.Second {
					t.Errorf("the first waited for %v", took)
				}
				near.Expect("UNLOCK job", ":1\r\n")
				proxytest.Token(t, far.Reply())
				far.Expect("UNLOCK job", ":1\r\n")
			}
		})
	})
}

// A question of an owner's place comes to Redis when a release has given the place the lock, and
// its client has taken that over: the lock stays that client's, with its lease.
func TestAQuestionOfAPlaceAfterTheTakeover(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server := virtualtest.StartStore(t)
		link := proxytest.LinkTo(t, server)
		dedicated := func(c *proxy.Config) { c.Dedicated = true }
		p := proxytest.Start(t, "redis://"+link.Addr(), dedicated)
		for _, shared := range []string{"", "SHARED "} {
			ask := "LOCK job 5 " + shared + "PLACE 30 OWNER me"
			held := proxytest.Dial(t, p.Addr).Lock("job 600")
			proxytest.Dial(t, p.Addr).Expect(ask, "$-1\r\n")
			time.Sleep(time.Second)
			link.Freeze()
			time.Sleep(500 * time.Millisecond) // a poll is on its way
			// They have new connections, which are not frozen.
			holder, owner := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
			holder.Expect(proxytest.Unlock("job", held), ":1\r\n")
			time.Sleep(time.Millisecond)
			token := proxytest.Token(t, owner.Do(ask))
			link.Thaw()
			synctest.Wait()
			info := owner.Do("LOCKINFO job")
			if want := "remaining_ms\r\n:5000\r\n"; !strings.Contains(info, want) {
				t.Errorf("%s: %q is not in %q", ask, want, info)
			}
			again := proxytest.Token(t, owner.Do("LOCK job 5 "+shared+"OWNER me"))
			if again != token {
				t.Errorf("%s: its owner has the token %d, and was given %d", ask, again, token)
			}
			owner.Expect("UNLOCK job", ":1\r\n")
			owner.Expect("LOCKINFO job", "$-1\r\n")
		}
	})
}

// A place's lock is its client's from when that asks: for its timeout, which can be shorter than
// the place, with its session, and shared with others.
func TestALockIsTakenOverFromAPlace(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		withTwo(t, func(t *testing.T, dial func(int) *proxytest.Conn) {
			a, x, y := dial(0), dial(0), dial(1)
			a.Lock("job 60")
			x.Expect("LOCK job 1 PLACE 60", "$-1\r\n")
			a.Expect("UNLOCK job", ":1\r\n")
			short := proxytest.Token(t, x.Do("LOCK job 1 PLACE 60"))
			time.Sleep(1010 * time.Millisecond)
			a.Lock("job 60")
			x.Expect(proxytest.Unlock("job", short), ":0\r\n")

			s := dial(0)
			const session = "LOCK job 9 PLACE 2 SESSION"
			s.Expect(session, "$-1\r\n")
			a.Expect("UNLOCK job", ":1\r\n")
			time.Sleep(time.Second)
			proxytest.Token(t, s.Do(session))
			time.Sleep(time.Minute) // it is renewed
			a.Expect("LOCK job 60", "$-1\r\n")
			s.Close()
			time.Sleep(time.Second)
			held := a.Lock("job 60")

			const reads = "LOCK job 30 SHARED PLACE 5 OWNER me"
			x.Expect(reads, "$-1\r\n")
			time.Sleep(time.Second)
			y.Send("LOCK job 30 SHARED WAIT 0")
			time.Sleep(time.Second)
			a.Expect(proxytest.Unlock("job", held), ":1\r\n")
			proxytest.Token(t, y.Reply())
			reader := proxytest.Token(t, x.Do(reads))
			if got := a.Do("LOCKINFO job"); !strings.Contains(got, "holders\r\n:2\r\n") {
				t.Errorf("LOCKINFO: %q", got)
			}
			time.Sleep(10 * time.Second) // the place is over, and its lock is the client's
			x.Expect(fmt.Sprintf("RELOCK job %d 30", reader), ":1\r\n")
			x.Expect("UNLOCK job", ":1\r\n")
			y.Expect("UNLOCK job", ":1\r\n")
			a.Expect("LOCKINFO job", "$-1\r\n")

			// A place that has lost its lock, by FORCE or otherwise, is over: LOCK begins another.
			held = a.Lock("job 60")
			x.Expect("LOCK job 30 PLACE 60", "$-1\r\n")
			a.Expect(proxytest.Unlock("job", held), ":1\r\n")
			time.Sleep(time.Second)
			a.Expect("UNLOCK job FORCE", ":1\r\n")
			held = y.Lock("job 60")
			x.Expect("LOCK job 30 PLACE 60", "$-1\r\n")
			y.Expect(proxytest.Unlock("job", held), ":1\r\n")
			time.Sleep(time.Second)
			proxytest.Token(t, x.Do("LOCK job 30 PLACE 60"))
			x.Expect("UNLOCK job", ":1\r\n")
		})
	})
}

// An owner's LOCK has found the lock that its place has taken. Another LOCK for that place does not
// take the lock from the connection that was given it, and does not shorten it.
func TestALockOfAPlaceThatItsOwnerHas(t *testing.T) {
	for _, shared := range []string{"", " SHARED"} {
		t.Run("job"+shared, func(t *testing.T) { placeThatItsOwnerHas(t, shared) })
	}
}

func placeThatItsOwnerHas(t *testing.T, shared string) {
	virtualtest.Run(t, func(t *testing.T) {
		withTwo(t, func(t *testing.T, dial func(int) *proxytest.Conn) {
			a, x, y, other := dial(0), dial(0), dial(0), dial(1)
			place := "LOCK job 2 PLACE 20 OWNER me" + shared
			taken := func(held string) (token int64) {
				a.Lock("job 60")
				x.Expect(place, "$-1\r\n")
				a.Expect("UNLOCK job", ":1\r\n")
				time.Sleep(time.Second)
				token = y.Lock("job " + held + " OWNER me" + shared)
				if again := proxytest.Token(t, x.Do(place)); again != token {
					t.Errorf("its owner has the token %d, and was given %d", token, again)
				}
				return token
			}

			token := taken("600")
			time.Sleep(100 * time.Second) // the place is over
			other.Expect("LOCK job 60", "$-1\r\n")
			y.Expect(proxytest.Unlock("job", token), ":1\r\n")
			other.Expect("LOCKINFO job", "$-1\r\n")

			// The lock ends with the last of the connections that were given it.
			place += " SESSION"
			taken("600 SESSION")
			x.Close()
			time.Sleep(100 * time.Second)
			other.Expect("LOCK job 60", "$-1\r\n")
			y.Expect("PING", "+PONG\r\n")
			y.Close()
			time.Sleep(time.Second)
			other.Lock("job 60")
		})
	})
}

// An owner whose place closes a cycle is told so when it asks, once.
func TestPlacesInACycle(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		_, p := virtualtest.StartBoth(t)
		a, b := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
		a.Lock("one 600 OWNER a")
		b.Lock("two 600 OWNER b")
		a.Expect("LOCK two 600 PLACE 30 OWNER a", "$-1\r\n")
		time.Sleep(time.Second)
		b.Expect("LOCK one 600 PLACE 30 OWNER b", "$-1\r\n")
		time.Sleep(3 * time.Second)
		told := a.Do("LOCK two 600 PLACE 30 OWNER a") + b.Do("LOCK one 600 PLACE 30 OWNER b")
		if strings.Count(told, "-DEADLOCK ") != 1 || strings.Count(told, "$-1\r\n") != 1 {
			t.Errorf("of a cycle they are told %q", told)
		}
		b.Expect("UNLOCK two", ":1\r\n")
		time.Sleep(time.Second)
		proxytest.Token(t, a.Do("LOCK two 600 PLACE 30 OWNER a"))
	})
}

// Clients that only ask now and then, stay away, or go, share a lock with some that wait, at two
// proxies, also if Redis is silent now and then: never two have it, and it gets lost for nobody.
func TestPlacesHistory(t *testing.T) {
	for _, faulty := range []bool{false, true} {
		t.Run(fmt.Sprintf("faulty %v", faulty), func(t *testing.T) { placesHistory(t, faulty) })
	}
}

func placesHistory(t *testing.T, faulty bool) {
	virtualtest.Run(t, func(t *testing.T) {
		server, p := virtualtest.StartBoth(t)
		addrs := []string{p.Addr, proxytest.Start(t, server.URL(), nil).Addr}
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		var mu sync.Mutex
		var holder, last int64 // guarded by mu; the token of who has the lock; the last token
		grants, away := 0, 0   // guarded by mu
		var running sync.WaitGroup
		for i := range 12 {
			random := rand.New(rand.NewPCG(seed, uint64(i)))
			running.Go(func() { // ends after its rounds
				var c *proxytest.Conn
				for range 15 {
					if c == nil {
						c = proxytest.Dial(t, addrs[i%2])
					}
					ask := "LOCK job 600 PLACE 5"
					switch i % 4 {
					case 1:
						ask += fmt.Sprintf(" OWNER o%d", i)
					case 2:
						ask = "LOCK job 600 WAIT 0"
					}
					token, stays := int64(0), random.IntN(5) > 0
					for tries := 0; token == 0 && (stays || tries < 3); tries++ {
						if token = readToken(c.Do(ask)); token == 0 {
							time.Sleep(time.Duration(random.IntN(4000)) * time.Millisecond)
						}
					}
					if token == 0 { // it leaves its place behind
						mu.Lock()
						away++
						mu.Unlock()
						c.Close()
						c = nil
						continue
					}
					mu.Lock()
					if holder != 0 || token <= last {
						t.Errorf("token %d while %d has the lock, after %d", token, holder, last)
					}
					holder, last = token, token
					grants++
					mu.Unlock()
					time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond)
					mu.Lock()
					holder = 0
					mu.Unlock()
					if got := c.Do(proxytest.Unlock("job", token)); got != ":1\r\n" {
						t.Errorf("UNLOCK of %d: %q", token, got)
					}
				}
			})
		}
		ended := make(chan struct{})
		go func() { // ends with the clients
			for faulty {
				select {
				case <-ended:
					return
				case <-time.After(5 * time.Second):
				}
				server.Pause()
				time.Sleep(2500 * time.Millisecond)
				server.Resume()
			}
		}()
		running.Wait()
		close(ended)
		t.Logf("%d grants, %d left their places", grants, away)
		time.Sleep(5 * time.Second)
		proxytest.Dial(t, addrs[0]).Lock("job 600") // all places are over
	})
}

// Clients that cannot block share a lock fairly, for few requests to Redis. Each asks every second,
// unless it forgets to: 1,000 in the same order each time, some in another.
func TestManyPlaces(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		virtualtest.Part(t, "1,000 in order", func(t *testing.T) { sharePlaces(t, 1000, 2, false, 4) })
		virtualtest.Part(t, "20 in any order", func(t *testing.T) { sharePlaces(t, 20, 10, true, 7) })
	})
}

// sharePlaces has clients take a lock in turn, until each has had it in each of rounds.
func sharePlaces(t *testing.T, clients, rounds int, mixed bool, maxScripts float64) {
	server, p := virtualtest.StartBoth(t)
	conns, won := make([]*proxytest.Conn, clients), make([]int, clients)
	for i := range conns {
		conns[i] = proxytest.Dial(t, p.Addr)
	}
	holder := proxytest.Dial(t, p.Addr)
	token := holder.Lock("job 600")
	order := rand.Perm(clients)
	scripts, grants := 0, 0
	for pass := 0; grants < rounds*clients && pass < 100*rounds; pass++ {
		if pass == 1 {
			holder.Expect(proxytest.Unlock("job", token), ":1\r\n")
			scripts = server.Scripts()
		}
		if mixed {
			order = rand.Perm(clients)
		}
		for _, i := range order {
			if grants == rounds*clients || pass > 0 && rand.IntN(1000) == 0 {
				continue // the others wait for it until it asks
			}
			if token := readToken(conns[i].Do("LOCK job 600 PLACE 60")); token != 0 {
				won[i]++
				grants++
				conns[i].Expect(proxytest.Unlock("job", token), ":1\r\n")
				conns[i].Expect("LOCK job 600 PLACE 60", "$-1\r\n")
			}
		}
		time.Sleep(time.Second)
	}
	least, most := slices.Min(won), slices.Max(won)
	each := float64(server.Scripts()-scripts) / float64(grants)
	t.Logf("%d grants, %d to %d for each client, %.2f scripts for each grant", grants, least, most,
		each)
	if float64(least) < 0.9*float64(most) || each > maxScripts {
		t.Errorf("%d to %d grants, %.2f scripts for each", least, most, each)
	}
}

// A place ends with its proxy, and with the lock that it has. How long it is kept is what its client
// said last.
func TestPlacesEnd(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server, p := virtualtest.StartBoth(t)
		ends := proxytest.Start(t, server.URL(), nil)
		a, x, y := proxytest.Dial(t, p.Addr), proxytest.Dial(t, ends.Addr), proxytest.Dial(t, p.Addr)
		a.Lock("job 60")
		x.Expect("LOCK job 60 PLACE 60", "$-1\r\n")
		time.Sleep(time.Second)
		y.Send("LOCK job 60 WAIT 0")
		a.Expect("UNLOCK job", ":1\r\n")
		time.Sleep(10 * time.Second)
		if y.Arrived() {
			t.Error("a place is overtaken")
		}
		ended := time.Now()
		if err := proxytest.Shutdown(proxytest.Ctx, t, ends)(); err != nil {
			t.Error(err)
		}
		proxytest.Token(t, y.Reply())
		if took := time.Since(ended); took > 5*time.Second {
			t.Errorf("the lock of a place is free %v after the end of its proxy", took)
		}

		a.Expect("LOCK job 60 PLACE 1", "$-1\r\n")
		a.Expect("LOCK job 60 PLACE 50", "$-1\r\n")
		y.Expect("UNLOCK job", ":1\r\n")
		time.Sleep(45 * time.Second)
		y.Expect("LOCK job 60", "$-1\r\n")
		time.Sleep(6 * time.Second)
		y.Lock("job 60")
		a.Expect("LOCK job 60 PLACE 50", "$-1\r\n")
		a.Expect("LOCK job 60 PLACE 1", "$-1\r\n")
		y.Expect("UNLOCK job", ":1\r\n")
		time.Sleep(2 * time.Second)
		y.Lock("job 60")
	})
}
