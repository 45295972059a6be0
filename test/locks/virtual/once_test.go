//go:build !race

package virtual_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/virtualtest"
)

// done is a DONE that stores a value.
func done(key string, token int64, rest string) string {
	return fmt.Sprintf("DONE %s %d %s", key, token, rest)
}

func TestOnce(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		withTwo(t, func(t *testing.T, dial func(int) *proxytest.Conn) {
			a, b := dial(0), dial(1)
			token := proxytest.Token(t, a.Do("ONCE page 30"))
			a.Expect("ONCE page 30", "$-1\r\n")
			b.Expect("ONCE page 30", "$-1\r\n")
			b.Expect("ONCE page 30 WAIT 0.1", "$-1\r\n")
			b.Expect(done("page", token+1, "wrong"), ":0\r\n")
			b.Expect("GET page", "$-1\r\n")
			b.Expect(done("page", token, "text EX 100"), ":1\r\n") // the token is the proof
			a.Expect("ONCE page 30", "$4\r\ntext\r\n")
			b.Expect("ONCE page 30 WAIT 0 SESSION", "$4\r\ntext\r\n")
			b.Expect("GET page", "$4\r\ntext\r\n")
			b.Expect("TTL page", ":100\r\n")
			a.Expect(done("page", token, "again"), ":0\r\n")
			a.Expect("GET page", "$4\r\ntext\r\n")

			a.Expect("DEL page", ":1\r\n")
			next := proxytest.Token(t, b.Do("ONCE page 30"))
			if next <= token {
				t.Errorf("token %d after %d", next, token)
			}
			b.Expect(done("page", next, "for:ever"), ":1\r\n")
			b.Expect("TTL page", ":-1\r\n")
			a.Expect("DEL page", ":1\r\n")
			last := proxytest.Token(t, a.Do("ONCE page 30"))
			a.Expect(fmt.Sprintf("DONE page %d", last), ":1\r\n") // it gives up
			a.Expect(fmt.Sprintf("DONE page %d", last), ":0\r\n")
			a.Expect("GET page", "$-1\r\n")
			proxytest.Token(t, b.Do("ONCE page 30"))
			a.Expect("HELLO 3", "%7…")
			a.Expect("ONCE page 30", "_\r\n")
		})
	})
}

// The empty key is a key, also for a value and its claim.
func TestOnceOfTheEmptyKey(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		withTwo(t, func(t *testing.T, dial func(int) *proxytest.Conn) {
			maker := dial(0)
			token := maker.DoWords("ONCE", "", "30")
			var waiters []*proxytest.Conn
			for i := range 6 {
				c := dial(i % 2)
				c.WriteRaw("*5\r\n$4\r\nONCE\r\n$0\r\n\r\n$2\r\n30\r\n$4\r\nWAIT\r\n$1\r\n0\r\n")
				synctest.Wait()
				waiters = append(waiters, c)
			}
			time.Sleep(time.Second)
			if got := maker.DoWords("DONE", "", strings.Trim(token, ":\r\n"), ""); got != ":1\r\n" {
				t.Errorf("DONE: %q", got)
			}
			for _, c := range waiters {
				c.WantReply("$0\r\n\r\n")
			}
			if got := maker.DoWords("ONCE", "", "30"); got != "$0\r\n\r\n" {
				t.Errorf("ONCE: %q", got)
			}
		})
	})
}

// A maker whose time has run out stores nothing.
func TestOnceMakerIsTooSlow(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		withTwo(t, func(t *testing.T, dial func(int) *proxytest.Conn) {
			a, b := dial(0), dial(1)
			slow := proxytest.Token(t, a.Do("ONCE page 10"))
			b.Send("ONCE page 10 WAIT 0")
			time.Sleep(11 * time.Second)
			next := proxytest.Token(t, b.Reply())
			a.Expect(done("page", slow, "late"), ":0\r\n")
			a.Expect("GET page", "$-1\r\n")
			b.Expect(done("page", next, "good PX 5000"), ":1\r\n")
			a.Expect("ONCE page 10", "$4\r\ngood\r\n")
			time.Sleep(6 * time.Second)
			proxytest.Token(t, a.Do("ONCE page 10"))
		})
	})
}

// All clients that wait, at any proxy, are given the value at once, from one read for each proxy.
func TestOnceWaitersShareTheValue(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		const each = 250
		store := virtualtest.StartStore(t)
		var proxies [2]*proxytest.Proxy
		var waiters []*proxytest.Conn
		for i := range proxies {
			proxies[i] = proxytest.Start(t, store.URL(), nil)
		}
		maker := proxytest.Dial(t, proxies[0].Addr)
		token := proxytest.Token(t, maker.Do("ONCE page 600"))
		for i := range 2 * each {
			w := proxytest.Dial(t, proxies[i%2].Addr)
			w.Send("ONCE page 600 WAIT 0")
			waiters = append(waiters, w)
		}
		time.Sleep(time.Second)
		store.Pause() // what was asked before is not counted
		synctest.Wait()
		store.Resume()
		synctest.Wait()
		before := store.Calls("GET")
		maker.Expect(done("page", token, "shared"), ":1\r\n")
		synctest.Wait()
		for i, w := range waiters {
			if !w.Arrived() {
				t.Fatalf("waiter %d was not answered at once", i)
			}
			w.WantReply("$6\r\nshared\r\n")
		}
		if n := store.Calls("GET") - before; n > 2 {
			t.Errorf("%d waiters at two proxies were answered by %d reads", len(waiters), n)
		}
	})
}

// When a maker gives up, disconnects or lets the time pass, the longest waiting client is the next.
// All others wait on.
func TestOnceNextMaker(t *testing.T) {
	for name, gives := range map[string]func(c *proxytest.Conn, token int64){
		"gives up": func(c *proxytest.Conn, token int64) {
			c.Expect(fmt.Sprintf("DONE page %d", token), ":1\r\n")
		},
		"disconnects": func(c *proxytest.Conn, _ int64) { c.Close() },
		"is too slow": func(*proxytest.Conn, int64) { time.Sleep(31 * time.Second) },
	} {
		virtualtest.Run(t, func(t *testing.T) {
			_, p := virtualtest.StartBoth(t)
			option := ""
			if name == "disconnects" {
				option = " SESSION"
			}
			maker := proxytest.Dial(t, p.Addr)
			token := proxytest.Token(t, maker.Do("ONCE page 30"+option))
			var waiters []*proxytest.Conn
			for range 4 {
				w := proxytest.Dial(t, p.Addr)
				w.Send("ONCE page 600 WAIT 0")
				waiters = append(waiters, w)
				synctest.Wait()
			}
			gives(maker, token)
			next := proxytest.Token(t, waiters[0].Reply())
			if next <= token {
				t.Errorf("token %d after %d", next, token)
			}
			time.Sleep(time.Minute)
			for i, w := range waiters[1:] {
				if w.Arrived() {
					t.Fatalf("waiter %d got %q although another makes the value", i+1, w.Reply())
				}
			}
			waiters[0].Expect(done("page", next, "good"), ":1\r\n")
			for _, w := range waiters[1:] {
				w.WantReply("$4\r\ngood\r\n")
			}
		})
	}
}

// A claim with SESSION outlasts its timeout, up to MAX.
func TestOnceSession(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		_, p := virtualtest.StartBoth(t)
		maker, other := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
		token := proxytest.Token(t, maker.Do("ONCE page 10 SESSION"))
		time.Sleep(time.Minute)
		other.Expect("ONCE page 10", "$-1\r\n")
		maker.Expect(done("page", token, "good"), ":1\r\n")
		maker.Expect("DEL page", ":1\r\n")
		proxytest.Token(t, maker.Do("ONCE page 10 SESSION MAX 30"))
		time.Sleep(time.Minute)
		maker.Closed()
		proxytest.Token(t, other.Do("ONCE page 10"))
	})
}

// EARLY asks one caller to make a value again that will soon expire. Nobody waits meanwhile.
func TestOnceEarly(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		withTwo(t, func(t *testing.T, dial func(int) *proxytest.Conn) {
			a, b := dial(0), dial(1)
			token := proxytest.Token(t, a.Do("ONCE page 30 EARLY 10"))
			b.Expect("ONCE page 30 EARLY 10", "$-1\r\n")
			a.Expect(done("page", token, "old EX 60"), ":1\r\n")
			a.Expect("ONCE page 30 EARLY 10", "$3\r\nold\r\n")
			time.Sleep(51 * time.Second)
			token = proxytest.Token(t, a.Do("ONCE page 30 EARLY 10"))
			began := time.Now()
			b.Expect("ONCE page 30 EARLY 10 WAIT 100", "$3\r\nold\r\n")
			if took := time.Since(began); took > 0 {
				t.Errorf("the present value came after %v", took)
			}
			b.Expect("ONCE page 30", "$3\r\nold\r\n")
			a.Expect(done("page", token, "new EX 60"), ":1\r\n")
			b.Expect("ONCE page 30 EARLY 10", "$3\r\nnew\r\n")
			b.Expect("PERSIST page", ":1\r\n")
			b.Expect("ONCE page 30 EARLY 10", "$3\r\nnew\r\n") // it lives forever
		})
	})
}

// A value that others write or delete is one like any other.
func TestOnceNextToOtherCommands(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		store, p := virtualtest.StartBoth(t)
		a, b, direct := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr),
			proxytest.Dial(t, store.Addr())
		token := proxytest.Token(t, a.Do("ONCE page 30"))
		b.Send("ONCE page 30 WAIT 0")
		synctest.Wait()
		direct.Expect("SET page other", "+OK\r\n")
		b.WantReply("$5\r\nother\r\n") // by a poll
		a.Expect(done("page", token, "mine"), ":1\r\n")
		a.Expect("ONCE page 30", "$4\r\nmine\r\n")

		// The maker gives up, and who waits finds a value.
		a.Expect("DEL page", ":1\r\n")
		token = proxytest.Token(t, a.Do("ONCE page 30"))
		waiters := []*proxytest.Conn{b, proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)}
		for _, w := range waiters {
			w.Send("ONCE page 30 WAIT 0")
			synctest.Wait()
		}
		direct.Expect("SET page found", "+OK\r\n")
		a.Expect(fmt.Sprintf("DONE page %d", token), ":1\r\n")
		for _, w := range waiters {
			w.WantReply("$5\r\nfound\r\n")
		}
		time.Sleep(time.Second)
		a.Expect("DEL page", ":1\r\n")
		proxytest.Token(t, a.Do("ONCE page 30")) // nobody was left with the claim

		direct.Expect("RPUSH list 1", ":1\r\n")
		a.Expect("ONCE list 30", "-WRONGTYPE …")
		a.Expect("ONCE list 30 WAIT 1", "-WRONGTYPE …")
		token = proxytest.Token(t, a.Do("ONCE late 30"))
		direct.Expect("RPUSH late 1", ":1\r\n")
		a.Expect(done("late", token, "text"), "-WRONGTYPE …")
		direct.Expect("LLEN late", ":1\r\n")

		// Who waits is handed the claim, and can't read what is there: the claim is released.
		token = proxytest.Token(t, a.Do("ONCE handed 30"))
		b.Send("ONCE handed 30 WAIT 0")
		synctest.Wait()
		direct.Expect("RPUSH handed 1", ":1\r\n")
		a.Expect(fmt.Sprintf("DONE handed %d", token), ":1\r\n")
		if got := b.Reply(); !strings.HasPrefix(got, "-WRONGTYPE ") {
			t.Errorf("who waited is told %q", got)
		}
		direct.Expect("DEL handed", ":1\r\n")
		proxytest.Token(t, a.Do("ONCE handed 30"))
	})
}

// The claim is a lock next to the value.
func TestOnceClaimIsALock(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		_, p := virtualtest.StartBoth(t)
		a, b := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
		token := proxytest.Token(t, a.Do("ONCE {page}:1 30 OWNER me"))
		if again := proxytest.Token(t, b.Do("ONCE {page}:1 30 OWNER me")); again != token {
			t.Errorf("its owner has %d, then %d", token, again)
		}
		scan := a.Do("LOCKSCAN 0 MATCH {page}:1:once:* COUNT 1000")
		_, name, _ := strings.Cut(scan, "{page}:1:once:")
		claim, _, _ := strings.Cut(name, "\r\n")
		claim = "{page}:1:once:" + claim
		if info := a.Do("LOCKINFO " + claim); !strings.Contains(info, fmt.Sprint(token)) {
			t.Fatalf("LOCKINFO of the claim %q: %q", claim, info)
		}
		a.Expect(fmt.Sprintf("FENCE %s %d SET data 1", claim, token), "+OK\r\n")
		b.Send("ONCE {page}:1 30 WAIT 0")
		synctest.Wait()
		a.Expect("UNLOCK "+claim+" FORCE", ":1\r\n")
		next := proxytest.Token(t, b.Reply())
		a.Expect(done("{page}:1", token, "late"), ":0\r\n")
		b.Expect(done("{page}:1", next, "good"), ":1\r\n")
	})
}

func TestOnceRefuses(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		_, p := virtualtest.StartBoth(t)
		c := proxytest.Dial(t, p.Addr)
		for request, want := range map[string]string{
			"ONCE k":                     "-ERR wrong number of arguments for 'once' command; see LOCK HELP\r\n",
			"ONCE k 0":                   "-ERR timeout …",
			"ONCE k 30 SHARED":           "-ERR syntax error near \"SHARED\": want EARLY seconds, …",
			"ONCE k 30 EARLY":            "-ERR syntax error near \"EARLY\"…",
			"ONCE k 30 EARLY 0":          "-ERR EARLY …",
			"ONCE k 30 EARLY 1 EARLY 1":  "-ERR syntax error near \"EARLY\"…",
			"ONCE k 30 MAX 3":            "-ERR syntax error near \"MAX\": want SESSION MAX seconds…",
			"LOCK k 30 EARLY 1":          "-ERR syntax error near \"EARLY\"…",
			"DONE k":                     "-ERR wrong number of arguments for 'done' command; see LOCK HELP\r\n",
			"DONE k x":                   "-ERR value is not an integer or out of range: \"x\" …",
			"DONE k 1 v EX":              "-ERR syntax error near \"EX\"…",
			"DONE k 1 v EX 0":            "-ERR invalid expire time in 'done' command: \"0\" …",
			"DONE k 1 v KEEPTTL 1":       "-ERR syntax error near \"KEEPTTL\"…",
			"DONE k 1 v EX 10 PX 10":     "-ERR wrong number of arguments for 'done' command; see LOCK HELP\r\n",
			"DONE k 1 v PX 10":           ":0\r\n",
			"DONE k 9999999999999999999": "-ERR value is not an integer or out of range…",
		} {
			c.Expect(request, want)
		}
		c.Expect("MULTI", "+OK\r\n")
		c.Expect("ONCE k 30", "-ERR …")
		c.Expect("EXEC", "-EXECABORT …")
		c.Expect("EXISTS k", ":0\r\n")
	})
}

// A waiter that disconnects is not given the claim, and one that is unblocked gets null.
func TestOnceWaiterLeaves(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		_, p := virtualtest.StartBoth(t)
		maker, leaves, stays := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr),
			proxytest.Dial(t, p.Addr)
		token := proxytest.Token(t, maker.Do("ONCE page 600"))
		leaves.Send("ONCE page 600 WAIT 0")
		synctest.Wait()
		stays.Send("ONCE page 600 WAIT 0")
		synctest.Wait()
		time.Sleep(time.Second)
		leaves.Close()
		time.Sleep(time.Second)
		maker.Expect(fmt.Sprintf("DONE page %d", token), ":1\r\n")
		token = proxytest.Token(t, stays.Reply())
		maker.Send("ONCE page 600 WAIT 5")
		time.Sleep(6 * time.Second)
		maker.WantReply("$-1\r\n")
		stays.Expect(done("page", token, "good"), ":1\r\n")
	})
}

// INFO counts what became of ONCEs and DONEs, and LOCKTOP and LOCKLOG know the claim as a lock. Who
// is given the present value while another makes it again was refused nothing.
func TestOnceIsCounted(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		_, p := virtualtest.StartBoth(t)
		a, b, c := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
		token := proxytest.Token(t, a.Do("ONCE page 600"))
		b.Send("ONCE page 600 WAIT 0")
		c.Send("ONCE page 600 WAIT 0")
		time.Sleep(time.Minute)
		a.Expect(done("page", token, "old EX 60"), ":1\r\n")
		b.WantReply("$3\r\nold\r\n")
		c.WantReply("$3\r\nold\r\n")
		a.Expect("ONCE page 600", "$3\r\nold\r\n")
		a.Expect("ONCE page 600 EARLY 30", "$3\r\nold\r\n")
		token = proxytest.Token(t, a.Do("ONCE page 600 EARLY 90 OWNER me"))
		b.Expect("ONCE page 600 EARLY 90", "$3\r\nold\r\n")
		c.Expect("ONCE page 600 EARLY 90 WAIT 0", "$3\r\nold\r\n")
		a.Expect(fmt.Sprintf("DONE page %d", token), ":1\r\n")
		a.Expect(fmt.Sprintf("DONE page %d", token), ":0\r\n")
		info := a.Do("INFO lockproxy")
		for name, want := range map[string]int{"once_hits": 4, "once_makers": 2, "once_shared": 2,
			"once_stored": 1, "once_given_up": 1, "locks_refused": 0, "locks_held": 0,
			"lock_waiters": 0} {
			if line := fmt.Sprintf("\r\n%s:%d\r\n", name, want); !strings.Contains(info, line) {
				t.Errorf("no %q in %s", line, info)
			}
		}
		top := a.Do("LOCKTOP")
		for _, want := range []string{"page:once:", "acquired\r\n:2\r\n", "waits\r\n:2\r\n",
			"refused\r\n:0\r\n", "me\r\n"} {
			if !strings.Contains(top, want) {
				t.Errorf("no %q in LOCKTOP: %q", want, top)
			}
		}
		log := a.Do("LOCKLOG")
		if strings.Count(log, "acquired\r\n") != 2 || strings.Count(log, "released\r\n") != 2 ||
			strings.Count(log, "page:once:") != 4 {
			t.Errorf("LOCKLOG: %q", log)
		}
	})
}
