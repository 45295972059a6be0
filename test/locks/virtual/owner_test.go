//go:build !race

package virtual_test

// A client asks again with the same OWNER on another connection: the end of the first connection
// must not take the lock away.

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/test/badlink"
	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/virtualtest"
)

// owners is a far away Redis behind two proxies, and a third proxy close to it.
type owners struct {
	t      *testing.T
	link   *badlink.Link
	far    [2]*proxytest.Proxy
	near   *proxytest.Proxy
	others *proxytest.Conn // a client of near
}

func startOwners(t *testing.T) *owners {
	server := virtualtest.StartStore(t)
	o := &owners{t: t, link: proxytest.LinkTo(t, server), near: proxytest.Start(t, server.URL(),
		nil)}
	for i := range o.far {
		o.far[i] = proxytest.Start(t, "redis://"+o.link.Addr(), nil)
		c := proxytest.SharedClient(t, o.far[i].Addr) // Redis knows the scripts now
		c.Lock(fmt.Sprintf("first:%d 30", i))
		c.Expect(fmt.Sprintf("UNLOCK first:%d", i), ":1\r\n")
	}
	o.others = proxytest.Dial(t, o.near.Addr)
	return o
}

// keeps fails unless the lock stays with a token until a release under way would have come, and the
// token can release it.
func (o *owners) keeps(key string, token int64, c *proxytest.Conn) {
	o.t.Helper()
	if got := o.others.Do("LOCK " + key + " 30 WAIT 0.3"); got != "$-1\r\n" {
		o.t.Errorf("%s: another client was given the lock: %q", key, got)
		return
	}
	c.Expect(fmt.Sprintf("RELOCK %s %d 30", key, token), ":1\r\n")
	c.Expect(proxytest.Unlock(key, token), ":1\r\n")
}

// isFree fails unless the next client gets the lock at once.
func (o *owners) isFree(key string) {
	o.t.Helper()
	began := time.Now()
	if got := o.others.Do("LOCK " + key + " 30 WAIT 3"); got[0] != ':' ||
		time.Since(began) > time.Second {
		o.t.Errorf("%s: %q after %v", key, got, time.Since(began))
		return
	}
	o.others.Expect("UNLOCK "+key, ":1\r\n")
}

// A client gives up before its token has come, and asks
// again: it keeps the lock that it is told of.
func TestOwnersRetryIsNotReleased(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		for _, latency := range []time.Duration{5, 50} {
			o := startOwners(t)
			o.link.Set(badlink.State{Latency: latency * time.Millisecond})
			for _, how := range []string{"", " SESSION", " WAIT 5"} {
				for i, where := range []string{"same proxy", "another"} {
					virtualtest.Part(t, fmt.Sprintf("%v%s %s", latency*time.Millisecond, how, where),
						func(t *testing.T) {
							for n, after := range []time.Duration{3, 20, 50} {
								key := fmt.Sprintf("job%s:%s:%d", strings.ReplaceAll(how, " ", "-"), where[:4], n)
								c, again := proxytest.SharedClient(t, o.far[0].Addr),
									proxytest.SharedClient(t, o.far[i].Addr)
								c.Send("LOCK " + key + " 30" + how + " OWNER me")
								time.Sleep(after * time.Millisecond)
								c.Close()
								o.keeps(key, again.Lock(key+" 30"+how+" OWNER me"), again)
							}
						})
				}
			}
		}
	})
}

// The same while Redis hangs: both requests are waiting there when the first client closes.
func TestOwnersRetryWhileRedisIsPaused(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		for i, where := range []string{"same proxy", "another"} {
			virtualtest.Part(t, where, func(t *testing.T) {
				o := startOwners(t)
				for n := range 5 {
					key := fmt.Sprintf("job:%d", n)
					c, again := proxytest.SharedClient(t, o.far[0].Addr),
						proxytest.SharedClient(t, o.far[i].Addr)
					o.link.Set(badlink.State{HoldUp: true, HoldDn: true})
					c.Send("LOCK " + key + " 30 OWNER me")
					time.Sleep(10 * time.Millisecond)
					c.Close()
					again.Send("LOCK " + key + " 30 OWNER me")
					time.Sleep(10 * time.Millisecond)
					o.link.Set(badlink.State{})
					o.keeps(key, proxytest.Token(t, again.Reply()), again)
				}
			})
		}
	})
}

// The client that gives up is first in the queue, and a release has named it already.
func TestOwnersRetryOfNamedWaiter(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		for i, where := range []string{"same proxy", "near"} {
			virtualtest.Part(t, where, func(t *testing.T) {
				o := startOwners(t)
				for n := range 3 {
					key := fmt.Sprintf("job:%d", n)
					c, holder := proxytest.SharedClient(t, o.far[0].Addr),
						proxytest.SharedClient(t, o.far[0].Addr)
					again := proxytest.SharedClient(t, [...]*proxytest.Proxy{o.far[0], o.near}[i].Addr)
					token := holder.Lock(key + " 30")
					c.Send("LOCK " + key + " 30 WAIT 20 OWNER me")
					proxytest.AwaitWaiters(t, o.far[0], key, 1)
					// it is recorded as waiting, and doesn't poll just now
					time.Sleep(300 * time.Millisecond)
					o.link.Set(badlink.State{HoldDn: true})
					holder.Send(proxytest.Unlock(key, token))
					testwait.Until(t, "the release has named the waiter, and its answer is on the way", func() bool {
						return strings.Contains(o.others.Do("LOCKINFO "+key), "\r\nme\r\n")
					})
					c.Close()
					again.Send("LOCK " + key + " 30 OWNER me")
					time.Sleep(20 * time.Millisecond)
					o.link.Set(badlink.State{})
					o.keeps(key, proxytest.Token(t, again.Reply()), again)
				}
			})
		}
	})
}

// An owner's lock is freed when the last of its connections
// that have it is closed, in whichever order.
func TestOwnersSessionsShareTheLock(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		for i, where := range []string{"same proxy", "another"} {
			for _, order := range [][3]int{{0, 1, 2}, {2, 1, 0}, {1, 2, 0}} {
				virtualtest.Part(t, fmt.Sprint(where, order), func(t *testing.T) {
					o := startOwners(t)
					var conns [3]*proxytest.Conn
					var token int64
					for n := range conns {
						conns[n] = proxytest.Dial(t, o.far[n*i%2].Addr)
						if got := conns[n].Lock("job 1 SESSION OWNER me"); token != 0 && got != token {
							t.Fatalf("got %d, want %d", got, token)
						} else {
							token = got
						}
					}
					for n, closing := range order {
						conns[closing].Close()
						if n == 2 {
							break
						}
						// longer than without its renewals
						o.others.Expect("LOCK job 30 WAIT 1.2", "$-1\r\n")
						for _, left := range order[n+1:] {
							// it hasn't been told that its lock is lost
							conns[left].Expect("PING", "+PONG\r\n")
						}
					}
					o.isFree("job")
				})
			}
		}
	})
}

// A lock that one connection of an owner got without SESSION
// stays for its timeout when another one with SESSION closes.
func TestOwnersSessionLeavesLockWithoutSession(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		o := startOwners(t)
		for i := range o.far {
			key := fmt.Sprint("job:", i)
			plain, session := proxytest.Dial(t, o.far[0].Addr), proxytest.Dial(t, o.far[i].Addr)
			token := plain.Lock(key + " 30 OWNER me")
			session.Lock(key + " 30 SESSION OWNER me")
			session.Close()
			o.keeps(key, token, plain)
		}
	})
}

// An owner has more connections than the record names:
// closing those that it names doesn't free the lock.
func TestOwnerOfManyConnections(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		o := startOwners(t)
		first := proxytest.Dial(t, o.near.Addr)
		token := first.Lock("job 30 OWNER me")
		for range 20 {
			c := proxytest.Dial(t, o.near.Addr)
			if got := c.Lock("job 30 SESSION OWNER me"); got != token {
				t.Fatalf("got %d, want %d", got, token)
			}
			defer c.Close()
		}
		for range 20 {
			c := proxytest.Dial(t, o.near.Addr)
			c.Lock("job 30 SESSION OWNER me")
			c.Close()
		}
		o.keeps("job", token, first)
	})
}

func TestOwner(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server, p := virtualtest.StartBoth(t)
		a, b := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
		token := a.Lock("job 30 OWNER me")
		if again := b.Lock("job 10 OWNER me"); again != token {
			t.Errorf("token %d, then %d", token, again)
		}
		direct := proxytest.GoRedis(t, server.Addr())
		if ttl := direct.PTTL(proxytest.Ctx, "job").Val(); ttl < 29*time.Second {
			t.Errorf("shortened to %v", ttl)
		}
		b.Lock("job 60 OWNER me WAIT 5")
		if ttl := direct.PTTL(proxytest.Ctx, "job").Val(); ttl < 59*time.Second {
			t.Errorf("not renewed: %v", ttl)
		}
		a.Expect("LOCK job 30 OWNER you", "$-1\r\n")
		a.Expect("LOCK job 30", "$-1\r\n")
		a.Expect("UNLOCK job", ":0\r\n") // b took it last
		b.Expect("UNLOCK job", ":1\r\n")
		if next := a.Lock("job 30 OWNER me"); next <= token {
			t.Errorf("token %d after %d", next, token)
		}
	})
}
