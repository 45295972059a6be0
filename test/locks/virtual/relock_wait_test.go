//go:build !race

package virtual_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/virtualtest"
)

// A reader that waits to become the writer does so as soon as nobody else reads, in front of the
// line. Meanwhile nobody else is let in, and a second one is told that they would wait for each
// other.
func TestAReaderWaitsToBecomeTheWriter(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		withTwo(t, func(t *testing.T, dial func(int) *proxytest.Conn) {
			a, b, c, writer, reader, looks := dial(0), dial(1), dial(0), dial(1), dial(0), dial(0)
			first, other := a.Lock("doc 10 SHARED SESSION"), b.Lock("doc 60 SHARED")
			third := c.Lock("doc 60 SHARED")
			writer.Send("LOCK doc 60 WAIT 0")
			time.Sleep(time.Second)
			a.Send(relock("doc", first, "10 EXCLUSIVE WAIT 0"))
			time.Sleep(time.Second)
			reader.Send("LOCK doc 60 SHARED WAIT 0")
			for _, second := range []struct {
				*proxytest.Conn
				token int64
			}{{b, other}, {c, third}} {
				second.Expect(relock("doc", second.token, "60 EXCLUSIVE WAIT 0"), "-DEADLOCK another …")
				second.Expect(relock("doc", second.token, "60 EXCLUSIVE"), "$-1\r\n")
			}
			for range 3 { // it is renewed meanwhile, as a session lock
				b.Expect("LOCK doc 60 SHARED", "$-1\r\n")
				looks.Expect("LOCK doc 60 LIMIT 9", "$-1\r\n")
				b.Expect(relock("doc", other, "60"), ":1\r\n")
				c.Expect(relock("doc", third, "60"), ":1\r\n")
				time.Sleep(8 * time.Second)
			}
			if got := looks.Do("LOCKINFO doc WAITERS"); strings.Contains(got, "^") {
				t.Errorf("WAITERS: %q", got)
			}
			b.Expect(proxytest.Unlock("doc", other), ":1\r\n")
			time.Sleep(time.Second)
			if a.Arrived() || reader.Arrived() || writer.Arrived() {
				t.Fatal("one of them does not wait")
			}
			began := time.Now()
			c.Expect(proxytest.Unlock("doc", third), ":1\r\n")
			mine := proxytest.Token(t, a.Reply())
			if took := time.Since(began); took > 50*time.Millisecond { // through its own proxy
				t.Errorf("it became the writer after %v", took)
			}
			if mine <= third {
				t.Errorf("token %d after %d", mine, third)
			}
			time.Sleep(time.Minute)
			if got := looks.Do("LOCKINFO doc"); !strings.Contains(got, fmt.Sprint(mine)) ||
				!strings.Contains(got, "exclusive") {
				t.Errorf("LOCKINFO: %q", got)
			}
			if reader.Arrived() || writer.Arrived() {
				t.Error("others have it, too")
			}
			a.Expect("UNLOCK doc", ":1\r\n")
			proxytest.Token(t, writer.Reply())
			writer.Expect("UNLOCK doc", ":1\r\n")
			proxytest.Token(t, reader.Reply())
			reader.Expect(relock("doc", first, "60 EXCLUSIVE WAIT 0"), ":0\r\n")
			reader.Expect("UNLOCK doc", ":1\r\n")
		})
	})
}

// The wait of a reader ends with its time, and with its client. Then it still
// reads, and others are let in again.
func TestAReaderStopsWaitingToBecomeTheWriter(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		withTwo(t, func(t *testing.T, dial func(int) *proxytest.Conn) {
			a, b, admin := dial(0), dial(1), dial(0)
			token, other := a.Lock("doc 600 SHARED"), b.Lock("doc 600 SHARED")
			began := time.Now()
			a.Expect(relock("doc", token, "600 EXCLUSIVE WAIT 3"), "$-1\r\n")
			if took := time.Since(began); took < 3*time.Second || took > 3100*time.Millisecond {
				t.Errorf("it waited for %v", took)
			}
			mine := admin.Lock("doc 600 SHARED") // at once
			admin.Expect(proxytest.Unlock("doc", mine), ":1\r\n")
			a.Send(relock("doc", token, "600 EXCLUSIVE WAIT 0"))
			time.Sleep(10 * time.Second)
			admin.Expect("LOCK doc 600 SHARED", "$-1\r\n")
			a.Close()
			time.Sleep(2 * time.Second)
			mine = admin.Lock("doc 600 SHARED")
			admin.Expect(proxytest.Unlock("doc", mine), ":1\r\n")
			admin.Expect(proxytest.Unlock("doc", token), ":1\r\n") // it was no session's
			exclusive := proxytest.Token(t, b.Do(relock("doc", other, "600 EXCLUSIVE WAIT 0")))
			if again := proxytest.Token(t, b.Do(relock("doc", exclusive, "600 EXCLUSIVE WAIT 0"))); again !=
				exclusive {
				t.Errorf("an exclusive lock became exclusive by %d", again)
			}
			for asked, said := range map[string]string{
				"RELOCK doc 1 60 SHARED WAIT 0":      `-ERR syntax error near "WAIT": WAIT is for EXCLUSIVE…`,
				"RELOCK doc 1 60 WAIT 0 EXCLUSIVE":   `-ERR syntax error near "WAIT": WAIT is for EXCLUSIVE…`,
				"RELOCK doc 1 60 EXCLUSIVE WAIT":     `-ERR syntax error near "WAIT": WAIT lacks its value…`,
				"RELOCK doc 1 60 EXCLUSIVE WAIT now": "-ERR WAIT is not a float or out of range…",
			} {
				b.Expect(asked, said)
			}
		})
	})
}

// Readers become writers, wait for that, give way, and stay away, at two proxies: while one writes,
// nobody else has the lock, and all get it again and again.
func TestReadersBecomeWritersHistory(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server, p := virtualtest.StartBoth(t)
		addrs := []string{p.Addr, proxytest.Start(t, server.URL(), nil).Addr}
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		var mu sync.Mutex
		var last int64                               // guarded by mu; the last token
		readers, writes, refused, idle := 0, 0, 0, 0 // guarded by mu
		pause := func(random *rand.Rand, ms int) {
			time.Sleep(time.Duration(random.IntN(ms)) * time.Millisecond)
		}
		var running sync.WaitGroup
		for i := range 8 {
			random := rand.New(rand.NewPCG(seed, uint64(i)))
			c := proxytest.Dial(t, addrs[i%2])
			running.Go(func() { // ends after its rounds
				for range 30 {
					token := proxytest.Token(t, c.Do("LOCK doc 600 SHARED WAIT 0"))
					mu.Lock()
					readers++
					mu.Unlock()
					pause(random, 300)
					mu.Lock()
					readers--
					mu.Unlock()
					got := ""
					if random.IntN(2) == 0 {
						got = c.Do(relock("doc", token, []string{"600 EXCLUSIVE WAIT 0", "600 EXCLUSIVE WAIT 1",
							"600 EXCLUSIVE"}[random.IntN(3)]))
					}
					mu.Lock()
					switch {
					case strings.HasPrefix(got, ":"):
						token = proxytest.Token(t, got)
						if readers != 0 || token <= last {
							t.Errorf("%d read while %d writes, after %d", readers, token, last)
						}
						writes++
						last, readers = token, readers+1
					case strings.HasPrefix(got, "-DEADLOCK "):
						refused++
					case got == "$-1\r\n":
						idle++
					case got != "":
						t.Errorf("RELOCK: %q", got)
					}
					mu.Unlock()
					if strings.HasPrefix(got, ":") {
						pause(random, 200)
						mu.Lock()
						readers--
						mu.Unlock()
					}
					c.Expect(proxytest.Unlock("doc", token), ":1\r\n")
					pause(random, 500)
				}
			})
		}
		running.Wait()
		t.Logf("%d writes, %d refused, %d waited for nothing", writes, refused, idle)
		if writes < 20 || refused == 0 || idle == 0 {
			t.Error("too little has happened")
		}
	})
}
