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

func relock(key string, token int64, more string) string {
	return fmt.Sprintf("RELOCK %s %d %s", key, token, more)
}

// A writer becomes a reader with the token that it has, and the readers at the head of the line
// join at once, here and at another proxy. Those behind another writer wait for their turn.
func TestAnExclusiveLockBecomesShared(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		withTwo(t, func(t *testing.T, dial func(int) *proxytest.Conn) {
			a, b, writer, late := dial(0), dial(1), dial(0), dial(0)
			token := a.Lock("doc 60 OWNER me")
			first, second := dial(0), dial(0)
			for _, reader := range []*proxytest.Conn{first, second, b} {
				reader.Send("LOCK doc 60 SHARED WAIT 0")
				time.Sleep(time.Second)
			}
			writer.Send("LOCK doc 60 WAIT 0")
			time.Sleep(time.Second)
			late.Send("LOCK doc 60 SHARED WAIT 0")
			time.Sleep(time.Second)

			began := time.Now()
			a.Expect(relock("doc", token, "30 SHARED"), ":1\r\n")
			var readers []int64
			for _, reader := range []*proxytest.Conn{first, second, b} {
				readers = append(readers, proxytest.Token(t, reader.Reply()))
			}
			if took := time.Since(began); took > 10*time.Millisecond {
				t.Errorf("the readers joined after %v", took)
			}
			if readers[0] <= token {
				t.Errorf("token %d after %d", readers[0], token)
			}
			info := a.Do("LOCKINFO doc")
			if !strings.Contains(info, "shared\r\n$7\r\nholders\r\n:4\r\n") {
				t.Errorf("LOCKINFO: %q", info)
			}
			// The token still holds it, and frees it.
			a.Expect(relock("doc", token, "60 SHARED"), ":1\r\n")
			a.Expect(relock("doc", token, "60"), ":1\r\n")
			if again := a.Lock("doc 60 SHARED OWNER me"); again != token {
				t.Errorf("its owner has the token %d, and was given %d", token, again)
			}
			if got := a.Do(fmt.Sprintf("FENCE doc %d SET doc:written 1", token)); got != "+OK\r\n" {
				t.Errorf("FENCE: %q", got)
			}
			a.Expect("UNLOCK doc", ":1\r\n")
			for i, reader := range []*proxytest.Conn{first, second, b} {
				reader.Expect(proxytest.Unlock("doc", readers[i]), ":1\r\n")
			}
			proxytest.Token(t, writer.Reply())
			a.Expect(relock("doc", token, "60 SHARED"), ":0\r\n")
			a.Expect(relock("free", token, "60 SHARED"), ":0\r\n")
			writer.Expect("UNLOCK doc", ":1\r\n")
			proxytest.Token(t, late.Reply())
		})
	})
}

// A reader becomes the writer if nobody else reads, also in front of those that wait. Its new token
// is greater than all before, and the old one is worth nothing.
func TestASharedLockBecomesExclusive(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		withTwo(t, func(t *testing.T, dial func(int) *proxytest.Conn) {
			a, b, waiter := dial(0), dial(1), dial(1)
			token := a.Lock("doc 60 SHARED OWNER me NOTE why")
			other := b.Lock("doc 60 SHARED")
			a.Expect(relock("doc", token, "60 EXCLUSIVE"), "$-1\r\n")
			waiter.Send("LOCK doc 60 WAIT 0")
			time.Sleep(time.Second)
			b.Expect("UNLOCK doc", ":1\r\n")
			exclusive := proxytest.Token(t, a.Do(relock("doc", token, "60 EXCLUSIVE")))
			if exclusive <= other {
				t.Errorf("token %d after %d", exclusive, other)
			}
			if again := proxytest.Token(t, a.Do(relock("doc", exclusive, "60 EXCLUSIVE"))); again != exclusive {
				t.Errorf("an exclusive lock became exclusive by %d", again)
			}
			info := b.Do("LOCKINFO doc")
			for _, part := range []string{"exclusive", "\r\nme\r\n", "\r\nwhy\r\n", fmt.Sprint(exclusive)} {
				if !strings.Contains(info, part) {
					t.Errorf("LOCKINFO %q lacks %q", info, part)
				}
			}
			for _, command := range []string{relock("doc", token, "60"), relock("doc", token,
				"60 EXCLUSIVE"), relock("doc", token, "60 SHARED"), proxytest.Unlock("doc", token)} {
				b.Expect(command, ":0\r\n")
			}
			b.Expect("LOCK doc 60 SHARED", "$-1\r\n")
			a.Expect("UNLOCK doc", ":1\r\n") // of the connection that has it
			if after := proxytest.Token(t, waiter.Reply()); after <= exclusive {
				t.Errorf("token %d after %d", after, exclusive)
			}
			if got := a.Do("RELOCK doc 1 60 LIMIT"); !strings.HasPrefix(got,
				`-ERR syntax error near "LIMIT": want SHARED, EXCLUSIVE or WAIT seconds`) {
				t.Errorf("LIMIT: %q", got)
			}
		})
	})
}

// A lock that becomes exclusive through another connection, or through one with many locks, stays
// its owner's, with its note.
func TestAnExclusiveLockStaysItsOwners(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		withTwo(t, func(t *testing.T, dial func(int) *proxytest.Conn) {
			a, b := dial(0), dial(1)
			b.Expect("CLIENT SETNAME a!b", "+OK\r\n")
			for i := range 70 {
				a.Lock(fmt.Sprintf("other:%d 60", i))
			}
			for i, asks := range []*proxytest.Conn{a, b} {
				key := fmt.Sprintf("doc:%d", i)
				token := a.Lock(key + " 60 SHARED OWNER me NOTE why")
				exclusive := proxytest.Token(t, asks.Do(relock(key, token, "60 EXCLUSIVE")))
				if info := b.Do("LOCKINFO " + key); !strings.Contains(info, "\r\nwhy\r\n") ||
					i == 1 && !strings.Contains(info, "\r\na!b\r\n") {
					t.Errorf("LOCKINFO %q", info)
				}
				if again := a.Lock(key + " 60 OWNER me"); again != exclusive {
					t.Errorf("its owner was given %d, and has %d", again, exclusive)
				}
			}
			// A connection's name is no note.
			token := b.Lock("plain 60 SHARED")
			proxytest.Token(t, a.Do(relock("plain", token, "60 EXCLUSIVE")))
			if info := a.Do("LOCKINFO plain"); !strings.Contains(info, "\r\nnote\r\n$-1\r\n") {
				t.Errorf("LOCKINFO %q", info)
			}
		})
	})
}

// A session lock lasts as long as its connection, whatever it becomes; MAX counts from its LOCK.
func TestSessionLocksChangeTheirMode(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		withTwo(t, func(t *testing.T, dial func(int) *proxytest.Conn) {
			a, b := dial(0), dial(1)
			token := a.Lock("doc 10 SESSION")
			for range 3 {
				a.Expect(relock("doc", token, "10 SHARED"), ":1\r\n")
				time.Sleep(time.Minute)
				b.Lock("doc 10 SHARED")
				b.Expect("UNLOCK doc", ":1\r\n")
				token = proxytest.Token(t, a.Do(relock("doc", token, "10 EXCLUSIVE")))
				time.Sleep(time.Minute)
				b.Expect("LOCK doc 10 SHARED", "$-1\r\n")
			}
			b.Send("LOCK doc 10 WAIT 0")
			time.Sleep(time.Second)
			a.Close()
			proxytest.Token(t, b.Reply())
			b.Expect("UNLOCK doc", ":1\r\n")

			c := dial(0)
			token = c.Lock("doc 10 SHARED SESSION MAX 90")
			time.Sleep(time.Minute)
			proxytest.Token(t, c.Do(relock("doc", token, "10 EXCLUSIVE")))
			b.Expect("LOCK doc 10 WAIT 25", "$-1\r\n")
			b.Send("LOCK doc 10 WAIT 20")
			proxytest.Token(t, b.Reply())
			b.Expect("UNLOCK doc", ":1\r\n")

			// Through another connection it is that one's, and the session has lost it.
			d := dial(0)
			token = d.Lock("doc 10 SHARED SESSION")
			proxytest.Token(t, b.Do(relock("doc", token, "60 EXCLUSIVE")))
			d.Closed()
			b.Expect("UNLOCK doc", ":1\r\n")
		})
	})
}
