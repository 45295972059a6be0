//go:build !race

package virtual_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/virtualtest"
)

// withTwo runs a test twice: with all clients at one proxy, and with every second one at another.
func withTwo(t *testing.T, test func(t *testing.T, dial func(i int) *proxytest.Conn)) {
	for _, proxies := range []int{1, 2} {
		virtualtest.Part(t, fmt.Sprintf("%d proxies", proxies), func(t *testing.T) {
			server, p := virtualtest.StartBoth(t)
			addrs := []string{p.Addr, p.Addr}
			if proxies == 2 {
				addrs[1] = proxytest.Start(t, server.URL(), nil).Addr
			}
			test(t, func(i int) *proxytest.Conn { return proxytest.Dial(t, addrs[i%2]) })
		})
	}
}

func TestSharedHoldersExcludeAnExclusiveOne(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		withTwo(t, func(t *testing.T, dial func(int) *proxytest.Conn) {
			a, b, c := dial(0), dial(1), dial(2)
			first, second := a.Lock("doc 30 SHARED"), b.Lock("doc 30 SHARED")
			if second <= first {
				t.Errorf("tokens %d, %d", first, second)
			}
			c.Expect("LOCK doc 30", "$-1\r\n")
			c.Expect("LOCK doc 30 WAIT 0.2", "$-1\r\n")
			a.Expect(proxytest.Unlock("doc", first), ":1\r\n")
			a.Expect(proxytest.Unlock("doc", first), ":0\r\n")
			c.Expect("LOCK doc 30", "$-1\r\n")
			b.Expect("UNLOCK doc", ":1\r\n")
			third := c.Lock("doc 30")
			if third <= second {
				t.Errorf("token %d after %d", third, second)
			}
			a.Expect("LOCK doc 30 SHARED", "$-1\r\n")
			a.Expect("LOCK doc 30 LIMIT 5", "$-1\r\n")
			c.Expect("UNLOCK doc", ":1\r\n")
			a.Lock("doc 30 SHARED")
		})
	})
}

func TestLimitBoundsHolders(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		withTwo(t, func(t *testing.T, dial func(int) *proxytest.Conn) {
			a, b, c := dial(0), dial(1), dial(2)
			a.Lock("pool 30 LIMIT 2")
			token := b.Lock("pool 30 LIMIT 2")
			c.Expect("LOCK pool 30 LIMIT 2", "$-1\r\n")
			third := c.Lock("pool 30 LIMIT 3") // each request brings its own
			c.Expect(proxytest.Unlock("pool", third), ":1\r\n")
			c.Send("LOCK pool 30 LIMIT 2 WAIT 5")
			time.Sleep(50 * time.Millisecond)
			b.Expect(proxytest.Unlock("pool", token), ":1\r\n")
			began := time.Now()
			proxytest.Token(t, c.Reply())
			if waited := time.Since(began); waited > time.Second {
				t.Errorf("the waiter got the free place after %v", waited)
			}
		})
	})
}

func TestSharedLockCommands(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		withTwo(t, func(t *testing.T, dial func(int) *proxytest.Conn) {
			a, b := dial(0), dial(1)
			first := a.Lock("doc 30 SHARED OWNER me")
			second := b.Lock("doc 60 SHARED")
			if again := b.Lock("doc 40 SHARED OWNER me"); again != first {
				t.Errorf("the same owner has %d, then %d", first, again)
			}
			b.Expect("LOCK doc 40 OWNER me", "$-1\r\n")
			b.Expect("DEL data", ":0\r\n")
			a.Expect(fmt.Sprintf("FENCE doc %d INCR data", first), ":1\r\n")
			b.Expect(fmt.Sprintf("FENCE doc %d INCR data", second), ":2\r\n")
			a.Expect(fmt.Sprintf("RELOCK doc %d 0.05", first), ":1\r\n")
			time.Sleep(60 * time.Millisecond)
			a.Expect(fmt.Sprintf("RELOCK doc %d 10", first), ":0\r\n")
			got := a.Do(fmt.Sprintf("FENCE doc %d INCR data", first))
			if !strings.HasPrefix(got, "-FENCED ") {
				t.Errorf("FENCE with a token that is over: %q", got)
			}
			a.Expect(proxytest.Unlock("doc", first), ":0\r\n")
			info := a.Do("LOCKINFO doc")
			for _, want := range []string{"shared", "$7\r\nholders\r\n:1\r\n", fmt.Sprint(second)} {
				if !strings.Contains(info, want) {
					t.Errorf("LOCKINFO lacks %q: %q", want, info)
				}
			}
			a.Lock("doc 30 SHARED SESSION")
			a.Expect("UNLOCK doc FORCE", ":1\r\n")
			a.Expect(fmt.Sprintf("RELOCK doc %d 10", second), ":0\r\n")
			a.Expect("LOCKINFO doc", "$-1\r\n")
		})
	})
}

// A shared request behind a waiting exclusive one waits, too.
func TestReadersDoNotOvertakeAWriter(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		withTwo(t, func(t *testing.T, dial func(int) *proxytest.Conn) {
			reader, writer, late, later := dial(0), dial(1), dial(0), dial(1)
			first := reader.Lock("doc 300 SHARED")
			writer.Send("LOCK doc 300 WAIT 300")
			time.Sleep(100 * time.Millisecond)
			late.Expect("LOCK doc 300 SHARED", "$-1\r\n")
			late.Expect("LOCK doc 300 SHARED WAIT 0.3", "$-1\r\n")
			late.Send("LOCK doc 300 SHARED WAIT 300")
			later.Send("LOCK doc 300 SHARED WAIT 300")
			time.Sleep(100 * time.Millisecond)
			reader.Expect(proxytest.Unlock("doc", first), ":1\r\n")
			token := proxytest.Token(t, writer.Reply())
			time.Sleep(100 * time.Millisecond)
			if late.Arrived() {
				t.Fatalf("a reader got %q next to the writer", late.Reply())
			}
			writer.Expect(proxytest.Unlock("doc", token), ":1\r\n")
			for _, c := range []*proxytest.Conn{late, later} {
				if got := proxytest.Token(t, c.Reply()); got <= token {
					t.Errorf("token %d after %d", got, token)
				}
			}
		})
	})
}

func TestSharedSessionLocks(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		withTwo(t, func(t *testing.T, dial func(int) *proxytest.Conn) {
			a, b, writer := dial(0), dial(1), dial(0)
			a.Lock("doc 1 SHARED SESSION")
			a.Lock("doc 1 SHARED SESSION") // a second holder on the same connection
			second := b.Lock("doc 1 SHARED SESSION")
			time.Sleep(1500 * time.Millisecond)
			writer.Expect("LOCK doc 300", "$-1\r\n")
			writer.Send("LOCK doc 300 WAIT 300")
			time.Sleep(50 * time.Millisecond)
			a.WriteRaw("QUIT\r\n")
			a.WantReply("+OK\r\n")
			time.Sleep(100 * time.Millisecond)
			if writer.Arrived() {
				t.Fatalf("the writer got %q while a reader is there", writer.Reply())
			}
			b.Expect(proxytest.Unlock("doc", second), ":1\r\n")
			proxytest.Token(t, writer.Reply())
		})
	})
}
