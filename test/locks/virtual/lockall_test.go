//go:build !race

package virtual_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/virtualtest"
)

func TestLockAll(t *testing.T) {
	withTwo(t, func(t *testing.T, dial func(int) *proxytest.Conn) {
		a, b := dial(0), dial(1)
		before := b.Lock("z 30")
		a.Expect("LOCKALL 30 3 x y z", "$-1\r\n")
		b.Lock("x 30") // nothing of it was taken
		b.Expect("UNLOCK x", ":1\r\n")
		b.Expect("UNLOCK z", ":1\r\n")
		token := proxytest.Token(t, a.Do("LOCKALL 30 3 x y z"))
		if token <= before {
			t.Errorf("token %d after %d", token, before)
		}
		for _, key := range []string{"x", "y", "z"} {
			b.Expect("LOCK "+key+" 30", "$-1\r\n")
			b.Expect("LOCK "+key+" 30 SHARED", "$-1\r\n")
			a.Expect(fmt.Sprintf("RELOCK %s %d 20", key, token), ":1\r\n")
		}
		a.Expect(fmt.Sprintf("FENCE y %d SET data 1", token), "+OK\r\n")
		a.Expect(proxytest.Unlock("y", token), ":1\r\n")
		b.Lock("y 30")
		a.Expect(fmt.Sprintf("UNLOCKALL %d 3 x y z", token), ":2\r\n")
		a.Expect(fmt.Sprintf("UNLOCKALL %d 2 x z", token), ":0\r\n")
		a.Expect("LOCKALL 30 2 x y", "$-1\r\n")
		b.Expect("UNLOCK y", ":1\r\n")

		token = proxytest.Token(t, a.Do("LOCKALL 30 2 x y OWNER me"))
		if again := proxytest.Token(t, b.Do("LOCKALL 30 2 x y OWNER me")); again != token {
			t.Errorf("its owner has %d, then %d", token, again)
		}
		a.Expect("LOCKALL 30 3 x y z OWNER me", "$-1\r\n")
	})
}

// A LOCKALL that gets nothing leaves the locks that its owner has as they are.
func TestLockAllRefusedChangesNothing(t *testing.T) {
	withTwo(t, func(t *testing.T, dial func(int) *proxytest.Conn) {
		for i := range 2 {
			holder, all := dial(0), dial(i)
			holder.Lock("x 30 OWNER me")
			before, _, _ := strings.Cut(holder.Do("LOCKINFO x"), "remaining_ms")
			if got := all.Do("LOCKALL 90 2 x y OWNER me WAIT 60"); got[:9] != "-DEADLOCK" {
				t.Errorf("a LOCKALL for what its owner has was answered %q", got)
			}
			after, _, _ := strings.Cut(holder.Do("LOCKINFO x"), "remaining_ms")
			if after != before {
				t.Errorf("it has made %q of %q", after, before)
			}
			holder.Expect("UNLOCK x", ":1\r\n")
		}
	})
}

func TestLockAllWaits(t *testing.T) {
	withTwo(t, func(t *testing.T, dial func(int) *proxytest.Conn) {
		holder, all, late := dial(1), dial(0), dial(1)
		held := holder.Lock("b 30")
		all.Send("LOCKALL 30 3 a b c WAIT 20")
		time.Sleep(300 * time.Millisecond)
		// It holds nothing, but keeps its place.
		holder.Expect("LOCKINFO a", "$-1\r\n")
		late.Expect("LOCK a 30", "$-1\r\n")
		late.Send("LOCK c 30 WAIT 20")
		time.Sleep(50 * time.Millisecond)
		holder.Expect(proxytest.Unlock("b", held), ":1\r\n")
		token := proxytest.Token(t, all.Reply())
		time.Sleep(300 * time.Millisecond)
		if late.Arrived() {
			t.Fatalf("another got %q meanwhile", late.Reply())
		}
		all.Expect(fmt.Sprintf("UNLOCKALL %d 3 a b c", token), ":3\r\n")
		proxytest.Token(t, late.Reply())
		late.Expect("LOCKALL 30 2 a c WAIT 0.1", "$-1\r\n")
	})
}

func TestLockAllSession(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		_, p := virtualtest.StartBoth(t)
		a, b := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
		proxytest.Token(t, a.Do("LOCKALL 1.5 2 x y SESSION"))
		time.Sleep(2 * time.Second)
		b.Expect("LOCK x 30", "$-1\r\n")
		b.Send("LOCKALL 30 2 y x WAIT 20")
		time.Sleep(20 * time.Millisecond)
		a.WriteRaw("QUIT\r\n")
		a.WantReply("+OK\r\n")
		proxytest.Token(t, b.Reply())
	})
}

func TestLockAllErrors(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		_, p := virtualtest.StartBoth(t)
		c := proxytest.Dial(t, p.Addr)
		c.Expect("SET data 1", "+OK\r\n")
		for command, want := range map[string]string{
			"LOCKALL 30 0 a": "-ERR numkeys should be greater than 0",
			"LOCKALL 30 2 a": "-ERR Number of keys can't be greater than " +
				"number of args",
			"LOCKALL 30 2 a a":                                 "-ERR the keys should be different: \"a\"",
			"LOCKALL 0 1 a":                                    "-ERR timeout is not a float or out of range",
			"LOCKALL 30 1":                                     "-ERR wrong number of arguments for 'lockall' command; see LOCK HELP",
			"LOCKALL 30 2 free data":                           "-WRONGTYPE ",
			"LOCKALL 30 2 free data WAIT 0.1":                  "-WRONGTYPE ",
			"LOCKALL 30 65 " + strings.Repeat("a ", 64) + "a":  "-ERR numkeys should be at most 64",
			"LOCKALL 30 99 " + strings.Repeat("a ", 98) + "a":  "-ERR numkeys should be at most 64",
			"UNLOCKALL 1 65 " + strings.Repeat("a ", 64) + "a": "-ERR numkeys should be at most 64",
		} {
			if got := c.Do(command); !strings.HasPrefix(got, want) {
				t.Errorf("%s: %q, want %q", command, got, want)
			}
		}
		c.Expect("LOCKINFO free", "$-1\r\n")
	})
}

// An error for one of several locks is no sign that the others were not released.
func TestUnlockAllNextToData(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		_, p := virtualtest.StartBoth(t)
		c := proxytest.Dial(t, p.Addr)
		c.Expect("SET data 1", "+OK\r\n")
		token := c.Lock("x 60 SESSION")
		c.Expect(fmt.Sprintf("UNLOCKALL %d 2 data x", token), "-WRONGTYPE …")
		c.Expect("LOCKINFO x", "$-1\r\n")
		time.Sleep(100 * time.Millisecond) // for which the session lock would be renewed, and lost
		c.Expect("PING", "+PONG\r\n")
	})
}

// What is wrong with one key of a LOCKALL is not what those are told that wait for another.
func TestLockAllOfDataConcernsNobodyElse(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		_, p := virtualtest.StartBoth(t)
		holder, first, other, all := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr),
			proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
		holder.Expect("SET data 1", "+OK\r\n")
		holder.Lock("x 60")
		first.Send("LOCK x 60 WAIT 0")
		proxytest.AwaitWaiters(t, p, "x", 1)
		for range 5 {
			other.Send("LOCK x 60 WAIT 0.1")
			time.Sleep(80 * time.Millisecond)
			all.Expect("LOCKALL 60 2 x data WAIT 1", "-WRONGTYPE …")
			other.WantReply("$-1\r\n")
		}
	})
}

// Clients that want three locks of twelve, next to clients that want one: never two holders of one,
// and each of them is served.
func TestLockAllIsFair(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		withTwo(t, func(t *testing.T, dial func(int) *proxytest.Conn) {
			const keys, clients = 8, 10
			var held [keys]atomic.Int32
			var served [2 * clients]atomic.Int64
			var wrong atomic.Int32
			end := time.Now().Add(time.Second / 2)
			var running sync.WaitGroup
			for i := range 2 * clients {
				c := dial(i)
				running.Go(func() {
					random := rand.New(rand.NewPCG(7, uint64(i)))
					for time.Now().Before(end) {
						set := random.Perm(keys)[:1]
						if i < clients {
							set = random.Perm(keys)[:3]
						}
						names := ""
						for _, k := range set {
							names += fmt.Sprintf(" {l}%d", k)
						}
						command := fmt.Sprintf("LOCKALL 30 %d%s WAIT 30", len(set), names)
						if len(set) == 1 {
							command = fmt.Sprintf("LOCK%s 30 WAIT 30", names)
						}
						c.Send(command)
						got, err := c.TryReply()
						var token int64
						if _, scanned := fmt.Sscanf(got, ":%d", &token); err != nil || scanned != nil {
							t.Errorf("%s: %q, %v", command, got, err)
							return
						}
						for _, k := range set {
							if held[k].Add(1) != 1 {
								wrong.Add(1)
							}
						}
						time.Sleep(20 * time.Millisecond)
						for _, k := range set {
							held[k].Add(-1)
						}
						served[i].Add(1)
						c.Send(fmt.Sprintf("UNLOCKALL %d %d%s", token, len(set), names))
						got, err = c.TryReply()
						if got != fmt.Sprintf(":%d\r\n", len(set)) {
							t.Errorf("UNLOCKALL: %q, %v", got, err)
							return
						}
					}
				})
			}
			running.Wait()
			if n := wrong.Load(); n > 0 {
				t.Errorf("%d times two clients had a lock", n)
			}
			var sum [2]int64
			least := [2]int64{1 << 60, 1 << 60}
			for i := range served {
				n := served[i].Load()
				sum[i/clients] += n
				least[i/clients] = min(least[i/clients], n)
			}
			for kind := range sum {
				if least[kind]*5*clients < sum[kind] {
					t.Errorf("of %d, one client has %d", sum[kind], least[kind])
				}
			}
		})
	})
}
