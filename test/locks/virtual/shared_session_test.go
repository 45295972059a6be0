//go:build !race

package virtual_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/virtualtest"
)

// closedAtOnce fails unless a session is told now that it has lost a lock, and not by its next
// renewal.
func closedAtOnce(t *testing.T, c *proxytest.Conn) {
	t.Helper()
	began := time.Now()
	c.Closed()
	if took := time.Since(began); took > 100*time.Millisecond {
		t.Errorf("its session is told after %v", took)
	}
}

// A client forces a lock that a session has made shared, through its own proxy or another: the
// session is told.
func TestForceOfALockThatASessionHasShared(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		withTwo(t, func(t *testing.T, dial func(int) *proxytest.Conn) {
			for asks := range 2 {
				a, b, admin := dial(0), dial(1), dial(0)
				token := a.Lock("doc 600 SESSION")
				by := a
				if asks == 1 {
					by = b
				}
				by.Expect(relock("doc", token, "600 SHARED"), ":1\r\n")
				b.Lock("doc 600 SHARED")
				admin.Expect("UNLOCK doc FORCE", ":1\r\n")
				closedAtOnce(t, a)
			}
		})
	})
}

// An owner releases a shared lock by its token. Its session at another connection is told, also if
// the owner's last LOCK was without SESSION, and whether or not others wait.
func TestAnOwnerReleasesItsSharedSession(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		withTwo(t, func(t *testing.T, dial func(int) *proxytest.Conn) {
			for _, waits := range []bool{false, true} {
				a, b, reader, writer := dial(0), dial(1), dial(0), dial(1)
				token := a.Lock("doc 600 SHARED SESSION OWNER me")
				reader.Lock("doc 900 SHARED")
				b.Lock("doc 600 SHARED OWNER me")
				if waits {
					writer.Send("LOCK doc 600 WAIT 0")
					time.Sleep(time.Second)
				}
				b.Expect(proxytest.Unlock("doc", token), ":1\r\n")
				closedAtOnce(t, a)
				reader.Expect("UNLOCK doc", ":1\r\n")
				if waits {
					proxytest.Token(t, writer.Reply())
				}
			}
		})
	})
}

// A session has made its lock shared, and its owner has asked for it again: it is one lock still,
// and its session is not told when it gives the lock up itself.
func TestAnOwnerAsksAgainForWhatItHasShared(t *testing.T) {
	for _, again := range []string{" SESSION", ""} {
		for _, ends := range []string{"UNLOCK", "RELOCK"} {
			virtualtest.Run(t, func(t *testing.T) {
				_, p := virtualtest.StartBoth(t)
				a, b := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
				token := a.Lock("doc 600 SESSION OWNER me")
				a.Lock("other 600 SESSION")
				a.Expect(relock("doc", token, "600 SHARED"), ":1\r\n")
				if got := a.Lock("doc 600 SHARED OWNER me" + again); got != token {
					t.Errorf("its owner was given %d, and has %d", got, token)
				}
				if ends == "UNLOCK" {
					a.Expect(proxytest.Unlock("doc", token), ":1\r\n")
				} else {
					proxytest.Token(t, a.Do(relock("doc", token, "600 EXCLUSIVE")))
				}
				time.Sleep(time.Hour)
				b.Expect("LOCK other 600", "$-1\r\n")
				a.Expect("PING", "+PONG\r\n")
			})
		}
	}
}

// An owner has its session's lock, which that has made shared, at two connections of one proxy. If
// one releases it, the other is told.
func TestAnOwnerReleasesWhatItHasShared(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		_, p := virtualtest.StartBoth(t)
		a, b := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
		reader := proxytest.Dial(t, p.Addr)
		token := a.Lock("doc 600 SESSION OWNER me")
		a.Expect(relock("doc", token, "600 SHARED"), ":1\r\n")
		reader.Lock("doc 900 SHARED")
		b.Lock("doc 600 SHARED OWNER me")
		b.Expect(proxytest.Unlock("doc", token), ":1\r\n")
		closedAtOnce(t, a)
	})
}

// One of several sessions that share a lock loses it through another proxy. This one is told,
// whichever it is, and the others have the lock still.
func TestOneOfManySharedSessionsLosesTheLock(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		withTwo(t, func(t *testing.T, dial func(int) *proxytest.Conn) {
			var readers []*proxytest.Conn
			var tokens []int64
			for range 5 {
				readers = append(readers, dial(0))
				tokens = append(tokens, readers[len(tokens)].Lock("doc 600 SHARED SESSION"))
			}
			other := dial(1)
			for i, c := range readers {
				other.Expect(proxytest.Unlock("doc", tokens[i]), ":1\r\n")
				closedAtOnce(t, c)
				for _, left := range readers[i+1:] {
					left.Expect("PING", "+PONG\r\n")
				}
			}
		})
	})
}

// MAX ends one of two sessions of an owner. The other has the lock still, and it has not ended for
// LOCKLOG.
func TestMaxEndsOneOfTwoSessions(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		_, p := virtualtest.StartBoth(t)
		a, b := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
		token := a.Lock("doc 60 SESSION MAX 100 OWNER me")
		if got := b.Lock("doc 60 SESSION OWNER me"); got != token {
			t.Errorf("its owner was given %d, and has %d", got, token)
		}
		a.Closed()
		if got := b.Do("LOCKLOG doc"); strings.Contains(got, "lost") {
			t.Errorf("LOCKLOG: %q", got)
		}
		time.Sleep(10 * time.Second)
		b.Expect(proxytest.Unlock("doc", token), ":1\r\n")
	})
}

// MAX ends sessions in time also while Redis is silent, whatever is asked for them then.
func TestMaxEndsSessionsWhileRedisIsSilent(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		store, p := virtualtest.StartBoth(t)
		began := time.Now()
		sessions := map[time.Duration]*proxytest.Conn{}
		for most := 90; most < 100; most++ {
			c := proxytest.Dial(t, p.Addr)
			c.Lock(fmt.Sprintf("doc%d 60 SESSION MAX %d", most, most))
			sessions[time.Duration(most)*time.Second] = c
		}
		time.Sleep(75 * time.Second)
		store.Pause()
		var all sync.WaitGroup
		for most, c := range sessions {
			all.Go(func() {
				c.Closed()
				if took := time.Since(began); took < most || took > most+100*time.Millisecond {
					t.Errorf("MAX %v has ended the session after %v", most, took)
				}
			})
		}
		all.Wait()
		store.Resume()
	})
}
