//go:build !race

package virtual_test

import (
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/virtualtest"
)

// Four clients of one proxy and one of another take a lock in turns, while release notifications
// fail. No client waits for more than the turns of the others and the time until a poll.
func TestTurnsWithoutNotifications(t *testing.T) {
	const (
		enough = 60                     // grants
		hold   = 300 * time.Millisecond // each proxy polls at least once
		// The four, the one that has it, and two for a poll interval.
		longest = 7
	)
	for name, fail := range map[string]func(store *virtualtest.Store){
		"no right to subscribe": func(store *virtualtest.Store) {
			store.Refuse("NOPERM no permissions to access one of the channels", "SUBSCRIBE")
		},
		"no right to publish": func(store *virtualtest.Store) {
			store.Refuse("NOPERM no permissions to access one of the channels", "PUBLISH")
		},
		"connections that end": func(store *virtualtest.Store) {
			store.Answer(func(client *server.Peer, _ []string) { client.Close() }, "SUBSCRIBE")
		},
	} {
		t.Run(name, func(t *testing.T) {
			virtualtest.Run(t, func(t *testing.T) {
				store, p := virtualtest.StartBoth(t)
				other := proxytest.Start(t, store.URL(), nil)
				fail(store)
				holder := proxytest.Dial(t, p.Addr)
				holder.Lock("job 300")
				var (
					mu      sync.Mutex
					order   []int // which client had it
					running sync.WaitGroup
				)
				for i, at := range []*proxytest.Proxy{p, p, p, p, other} {
					c := proxytest.Dial(t, at.Addr)
					running.Go(func() { // ends with enough grants
						for over := false; !over; {
							c.Send("LOCK job 300 WAIT 0")
							if got, err := c.TryReply(); err != nil || got[0] != ':' {
								t.Errorf("client %d: %q, %v", i, got, err)
								return
							}
							mu.Lock()
							order = append(order, i)
							over = len(order) >= enough
							mu.Unlock()
							time.Sleep(hold)
							c.Expect("UNLOCK job", ":1\r\n")
						}
					})
				}
				proxytest.AwaitWaiters(t, p, "job", 4)
				proxytest.AwaitWaiters(t, other, "job", 1)
				holder.Expect("UNLOCK job", ":1\r\n")
				running.Wait()
				t.Log(order)
				since := map[int]int{} // how many had had it when a client had it last
				streak := 0
				for n, i := range order {
					since[i] = n + 1
					if streak = streak + 1; i != 4 {
						streak = 0
					}
					if streak > 3 {
						t.Errorf("grant %d: the other client has it again while four wait", n)
					}
					for client := range 5 {
						if behind := n + 1 - since[client]; behind > longest {
							t.Errorf("grant %d: client %d is behind %d others", n, client, behind)
						}
					}
				}
			})
		})
	}
}

// A proxy that is far from Redis believes that an owner has a lock which the owner has released
// through another proxy. The owner waits there again, and is given the lock in its turn.
func TestTurnOfAnOwnerThatReleasesElsewhere(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		store := virtualtest.StartStore(t)
		link := proxytest.LinkTo(t, store)
		link.Away(100 * time.Millisecond)
		far := proxytest.Start(t, "redis://"+link.Addr(), nil)
		near := proxytest.Start(t, store.URL(), nil)
		waiter, elsewhere := proxytest.Dial(t, far.Addr), proxytest.Dial(t, near.Addr)
		others := []*proxytest.Conn{proxytest.Dial(t, near.Addr), proxytest.Dial(t, near.Addr)}
		elsewhere.Expect(proxytest.Unlock("job", waiter.Lock("job 60 OWNER me")), ":1\r\n")
		held := others[0].Lock("job 60")
		waiter.Send("LOCK job 60 OWNER me WAIT 0")
		time.Sleep(2 * time.Second) // deadlocks are searched for meanwhile
		for i := 1; !waiter.Arrived(); i++ {
			time.Sleep(10 * time.Millisecond)
			others[(i+1)%2].Expect(proxytest.Unlock("job", held), ":1\r\n")
			next := others[i%2]
			next.Send("LOCK job 60 WAIT 0")
			for !next.Arrived() && !waiter.Arrived() {
				time.Sleep(time.Millisecond)
			}
			if waiter.Arrived() {
				break
			}
			if held = proxytest.Token(t, next.Reply()); i > 2 {
				t.Fatalf("%d later ones were given the lock before", i)
			}
		}
		proxytest.Token(t, waiter.Reply())
	})
}
