//go:build !race

package virtual_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/virtualtest"
	"lockproxy/lockcmd/keyname"
)

// A lock that runs out goes to the client that waits for it at another proxy, not to one that began
// to wait later here, however late.
func TestWaitOvertakesNoWaiterElsewhere(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server, p := virtualtest.StartBoth(t)
		other := proxytest.Start(t, server.URL(), nil)
		const rounds, held = 8, 300 * time.Millisecond
		overtaken := 0
		for range rounds {
			holder, late, waiter := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr),
				proxytest.Dial(t, other.Addr)
			holder.Lock("job 0.3")
			began := time.Now()
			waiter.Send("LOCK job 30 WAIT 10")
			proxytest.AwaitListed(t, holder, "job")
			first := make(chan int64)
			go func() { // ends when the waiter is served
				token := proxytest.Token(t, waiter.Reply())
				waiter.Expect(proxytest.Unlock("job", token), ":1\r\n")
				first <- token
			}()
			time.Sleep(time.Until(began.Add(held)) - 10*time.Millisecond + rand.N(15*time.Millisecond))
			late.Send("LOCK job 30 WAIT 10")
			token := proxytest.Token(t, late.Reply())
			late.Expect(proxytest.Unlock("job", token), ":1\r\n")
			if token < <-first {
				overtaken++
			}
		}
		if overtaken > 0 {
			t.Errorf("a waiter was overtaken in %d of %d rounds", overtaken, rounds)
		}
	})
}

// A client that asks at one proxy all the time gets no lock that runs out or is deleted while
// another client waits for it at another proxy.
func TestLockOvertakesNoWaiterElsewhere(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		for name, asks := range map[string]struct{ held, command string }{
			"expiry":          {"0.3", "LOCK {job} 300"},
			"expiry, shared":  {"0.3", "LOCK {job} 300 SHARED"},
			"expiry, LOCKALL": {"0.3", "LOCKALL 300 2 {job}2 {job}"},
			"DEL":             {"30", "LOCK {job} 300"},
		} {
			virtualtest.Part(t, name, func(t *testing.T) {
				server, p := virtualtest.StartBoth(t)
				other := proxytest.Start(t, server.URL(), nil)
				asking, waiter := proxytest.Dial(t, p.Addr), proxytest.Dial(t, other.Addr)
				const rounds = 3
				overtaken := 0
				for range rounds {
					began := time.Now()
					asking.Lock("{job} " + asks.held)
					waiter.Send("LOCK {job} 300 WAIT 300")
					proxytest.AwaitListed(t, asking, "{job}")
					if asks.held == "30" {
						server.Ask("DEL", "{job}")
					} else {
						time.Sleep(time.Until(began.Add(280 * time.Millisecond))) // it soon expires
					}
					served := make(chan string)
					go func() { served <- waiter.Reply() }() // ends when the waiter is served
					for got := ""; got == ""; time.Sleep(time.Millisecond) {
						if reply := asking.Do(asks.command); reply[0] == ':' {
							overtaken++
							asking.Do("UNLOCK {job}2")
							asking.Expect("UNLOCK {job}", ":1\r\n")
						}
						select {
						case got = <-served:
							proxytest.Token(t, got)
							waiter.Expect("UNLOCK {job}", ":1\r\n")
						default:
						}
					}
				}
				if overtaken > 0 {
					t.Errorf("a waiter was overtaken %d times in %d rounds", overtaken, rounds)
				}
			})
		}
	})
}

// A waiter that has given up, or gone, keeps nobody at another proxy from a lock that is free.
func TestLockAfterAWaiterElsewhereThatGaveUp(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server, p := virtualtest.StartBoth(t)
		other := proxytest.Start(t, server.URL(), nil)
		for name, end := range map[string]struct {
			wait string // arguments
			held string
			end  func(t *testing.T, waiter *proxytest.Conn, lock string)
		}{
			"its time has expired": {"WAIT 0.1", "1", func(t *testing.T, w *proxytest.Conn, _ string) {
				w.WantReply("$-1\r\n")
			}},
			"its client is disconnected": {"WAIT 300", "1", func(t *testing.T, w *proxytest.Conn, _ string) {
				w.Close()
			}},
			"a DEL": {"WAIT 0.1", "30", func(t *testing.T, w *proxytest.Conn, lock string) {
				w.WantReply("$-1\r\n")
				server.Ask("DEL", lock)
			}},
			"another library's lock since": {"WAIT 0.1", "30",
				func(t *testing.T, w *proxytest.Conn, lock string) {
					server.Ask("SET", lock, "random", "PX", "300")
					w.WantReply("$-1\r\n")
				}},
		} {
			virtualtest.Part(t, name, func(t *testing.T) {
				const rounds = 3
				for i := range rounds {
					holder, waiter := proxytest.Dial(t, p.Addr), proxytest.Dial(t, other.Addr)
					lock := strings.ReplaceAll(name, " ", "_") + string(rune('0'+i))
					holder.Lock(lock + " " + end.held)
					waiter.Send("LOCK " + lock + " 30 " + end.wait)
					proxytest.AwaitListed(t, holder, lock)
					end.end(t, waiter, lock)
					isFreeSoon(t, server, holder, lock)
				}
			})
		}
	})
}

// isFreeSoon fails unless a client gets a lock within moments of its end.
func isFreeSoon(t *testing.T, server *virtualtest.Store, c *proxytest.Conn, lock string) {
	t.Helper()
	testwait.Until(t, "the lock ends", func() bool {
		return server.Ask("EXISTS", lock) == ":0"
	})
	for began := time.Now(); c.Do("LOCK "+lock+" 30") == "$-1\r\n"; time.Sleep(time.Millisecond) {
		if waited := time.Since(began); waited > 50*time.Millisecond {
			t.Fatalf("a free lock that nobody waits for is refused for %v", waited)
		}
	}
}

// A client that wants a lock for itself, and waits behind others that share it, is not overtaken at
// another proxy while these are given the lock, however long it takes its proxy to hear of that.
func TestSharersOvertakeNobodyBehindThemElsewhere(t *testing.T) {
	const away = 100 * time.Millisecond
	for name, released := range map[string]int{"by the waiters' proxy": 0, "by another": 1} {
		for behind, wants := range map[string]string{"exclusive": "", "limit": " LIMIT 1"} {
			virtualtest.Run(t, func(t *testing.T) {
				store := virtualtest.StartStore(t)
				link := proxytest.LinkTo(t, store)
				link.Away(away)
				proxies := []*proxytest.Proxy{
					proxytest.Start(t, "redis://"+link.Addr(), nil),
					proxytest.Start(t, store.URL(), nil),
				}
				dial := func(i int) *proxytest.Conn { return proxytest.Dial(t, proxies[i].Addr) }
				holder, asking := dial(released), dial(1)
				reader, second, last := dial(0), dial(0), dial(0)
				token := holder.Lock("doc 600")
				for _, w := range []struct {
					c    *proxytest.Conn
					asks string
				}{{reader, " SHARED"}, {second, " SHARED"}, {last, wants}} {
					w.c.Send("LOCK doc 600 WAIT 0" + w.asks)
					time.Sleep(time.Second)
				}
				holder.Send(proxytest.Unlock("doc", token))
				for range 60 { // for a few round trips
					time.Sleep(20 * time.Millisecond)
					if got := asking.Do("LOCK doc 600 SHARED"); got != "$-1\r\n" {
						t.Fatalf("%s, %s: %q, while a client waits that wants the lock otherwise",
							name, behind, got)
					}
				}
				for _, c := range []*proxytest.Conn{reader, second} {
					c.Expect(proxytest.Unlock("doc", proxytest.Token(t, c.Reply())), ":1\r\n")
				}
				proxytest.Token(t, last.Reply())
			})
		}
	}
}

// A proxy that tracks a lock asks for it as soon as it is free. If it does not it has ended, and
// for a LOCK without WAIT it counts as waiting for a second more, not for as long as it need not
// ask.
func TestLockAfterAProxyThatTrackedItAndHasEnded(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server, p := virtualtest.StartBoth(t)
		c := proxytest.Dial(t, p.Addr)
		for _, command := range []string{"LOCK job 300", "LOCK job 300 SHARED", "LOCKALL 300 1 job"} {
			now := time.Now().UnixMilli()
			server.Ask("SET", keyname.Record([]byte("job")), fmt.Sprintf(
				"v1 %d 0 0 0 0 0 released - 0 - gone:%d:t0:%d\n", now*1000, now-2000, now-9000))
			c.Expect(command, "$-1\r\n")
			time.Sleep(1100 * time.Millisecond)
			token := proxytest.Token(t, c.Do(command))
			c.Expect(proxytest.Unlock("job", token), ":1\r\n")
			server.Ask("DEL", "job", keyname.Record([]byte("job")))
		}
	})
}

// A reader that has come behind another proxy's writer is not let in when one of the readers before
// it leaves, though the writer in front of it here has given up.
func TestReaderBehindAWriterElsewhereWhenAReaderLeaves(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		store := virtualtest.StartStore(t)
		a, b := proxytest.Start(t, store.URL(), nil), proxytest.Start(t, store.URL(), nil)
		dial := func(p *proxytest.Proxy) *proxytest.Conn { return proxytest.Dial(t, p.Addr) }
		holder, w1, w2, far := dial(a), dial(a), dial(a), dial(b)
		r1, r2, r3 := dial(a), dial(a), dial(a)
		token := holder.Lock("doc 600")
		for i, c := range []*proxytest.Conn{w1, r1, r2, w2} {
			c.Send("LOCK doc 600 WAIT 0" + []string{"", " SHARED", " SHARED", ""}[i])
			time.Sleep(100 * time.Millisecond)
		}
		holder.Expect(proxytest.Unlock("doc", token), ":1\r\n")
		token = proxytest.Token(t, w1.Reply())
		far.Send("LOCK doc 600 WAIT 0")
		time.Sleep(time.Second)
		w1.Expect(proxytest.Unlock("doc", token), ":1\r\n")
		one := proxytest.Token(t, r1.Reply())
		two := proxytest.Token(t, r2.Reply())
		r3.Send("LOCK doc 600 SHARED WAIT 5")
		time.Sleep(time.Second)
		w2.Close()
		time.Sleep(time.Second)
		r1.Expect(proxytest.Unlock("doc", one), ":1\r\n")
		r3.WantReply("$-1\r\n")
		r2.Expect(proxytest.Unlock("doc", two), ":1\r\n")
		proxytest.Token(t, far.Reply())
	})
}
