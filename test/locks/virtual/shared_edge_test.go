//go:build !race

package virtual_test

import (
	"strings"
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/virtualtest"
	"lockproxy/internal/test/wire"
)

// A writer that gives up does not keep readers away any longer, at no proxy.
func TestReadersAfterAWriterThatGaveUp(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		withTwo(t, func(t *testing.T, dial func(int) *proxytest.Conn) {
			reader, writer, late, waiting := dial(0), dial(1), dial(0), dial(1)
			reader.Lock("doc 30 SHARED")
			writer.Send("LOCK doc 30 WAIT 0.4")
			time.Sleep(100 * time.Millisecond)
			late.Expect("LOCK doc 30 SHARED", "$-1\r\n")
			waiting.Send("LOCK doc 30 SHARED WAIT 10")
			writer.WantReply("$-1\r\n")
			began := time.Now()
			proxytest.Token(t, waiting.Reply())
			if waited := time.Since(began); waited > 200*time.Millisecond {
				t.Errorf("the reader behind the writer got the lock %v after the writer had gone",
					waited)
			}
			gone := dial(1)
			gone.Send("LOCK doc 30 WAIT 10")
			time.Sleep(100 * time.Millisecond)
			gone.Close()
			isLetIn(t, late, "doc")
			owner := dial(1)
			owner.Lock("page 30 SHARED OWNER me")
			owner.Send("LOCK page 30 WAIT 10 OWNER me")
			if reply := owner.Reply(); !strings.HasPrefix(reply, "-DEADLOCK ") {
				t.Fatalf("a reader that waits for itself is answered %q", reply)
			}
			isLetIn(t, late, "page")
		})
	})
}

// isLetIn fails unless a reader soon gets a lock, for which a writer no longer waits.
func isLetIn(t *testing.T, reader *proxytest.Conn, lock string) {
	t.Helper()
	began := time.Now()
	for reader.Do("LOCK "+lock+" 30 SHARED") == "$-1\r\n" {
		if waited := time.Since(began); waited > 500*time.Millisecond {
			t.Fatalf("a reader of %s is refused %v after the waiting writer has left",
				lock, waited)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// An owner has one token, also if it comes to hold the lock while another of its LOCKs waits.
func TestWaitingOwnerSharesItsToken(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		withTwo(t, func(t *testing.T, dial func(int) *proxytest.Conn) {
			a, b, writer, front, last := dial(0), dial(1), dial(0), dial(1), dial(1)
			token := a.Lock("doc 30")
			front.Send("LOCK doc 30 SHARED WAIT 10")
			time.Sleep(50 * time.Millisecond)
			b.Send("LOCK doc 30 SHARED WAIT 10 OWNER me")
			last.Send("LOCK doc 30 SHARED WAIT 10 OWNER me")
			time.Sleep(50 * time.Millisecond)
			a.Expect(proxytest.Unlock("doc", token), ":1\r\n")
			proxytest.Token(t, front.Reply())
			first, second := proxytest.Token(t, b.Reply()), proxytest.Token(t, last.Reply())
			if first != second {
				t.Errorf("the owner has %d and %d", first, second)
			}
			writer.Expect("UNLOCK doc FORCE", ":1\r\n")
		})
	})
}

// A client that forces its own locks is not closed for having lost them.
func TestForcingOnesOwnSharedLocks(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		withTwo(t, func(t *testing.T, dial func(int) *proxytest.Conn) {
			a, b := dial(0), dial(1)
			for range 3 {
				a.Lock("doc 5 SHARED SESSION")
			}
			b.Lock("doc 5 SHARED SESSION")
			a.Expect("UNLOCK doc FORCE", ":1\r\n")
			b.Closed()
			a.Expect("PING", "+PONG\r\n")
			time.Sleep(50 * time.Millisecond)
			a.Expect("PING", "+PONG\r\n")
			a.Lock("doc 5")
		})
	})
}

// An owner that holds a lock for itself is told its token also if it asks to share it. The lock
// stays its own.
func TestOwnerOfAnExclusiveLockAsksToShareIt(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		withTwo(t, func(t *testing.T, dial func(int) *proxytest.Conn) {
			a, b := dial(0), dial(1)
			token := a.Lock("doc 30 OWNER me")
			if again := a.Lock("doc 30 SHARED SESSION OWNER me"); again != token {
				t.Errorf("token %d after %d", again, token)
			}
			b.Expect("LOCK doc 30 SHARED", "$-1\r\n")
			if info := a.Do("LOCKINFO doc"); !strings.Contains(info, "exclusive") {
				t.Errorf("LOCKINFO says %q", info)
			}
			a.Expect("UNLOCK doc", ":1\r\n")
			b.Lock("doc 30")
			a.Expect("LOCKTOP", "*…")
			time.Sleep(50 * time.Millisecond)
			a.Expect("PING", "+PONG\r\n")
		})
	})
}

// A LOCKALL that gives up keeps its place in no queue.
func TestLocksAfterALockallThatGaveUp(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		withTwo(t, func(t *testing.T, dial func(int) *proxytest.Conn) {
			a, b := dial(0), dial(1)
			a.Lock("{doc}1 30")
			b.Expect("LOCKALL 30 2 {doc}1 {doc}2 WAIT 0.3", "$-1\r\n")
			for began := time.Now(); a.Do("LOCK {doc}2 30") == "$-1\r\n"; {
				if waited := time.Since(began); waited > 500*time.Millisecond {
					t.Fatalf("a free lock is refused %v after the LOCKALL has given up", waited)
				}
				time.Sleep(10 * time.Millisecond)
			}
		})
	})
}

// A foreign client that writes the very timestamp of a shared lock, after a DEL, shares it with
// nobody: LOCK would have set a TTL.
func TestForeignTwinOfASharedLock(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		withTwo(t, func(t *testing.T, dial func(int) *proxytest.Conn) {
			reader, other := dial(0), dial(1)
			token := reader.Lock("doc 30 SHARED")
			reader.Lock("doc 30 SHARED")
			value := other.Do("GET doc")
			_, value, _ = strings.Cut(strings.TrimSpace(value), "\r\n")
			other.Expect("DEL doc", ":1\r\n")
			other.Expect("SETNX doc "+value, ":1\r\n")
			other.Expect("LOCK doc 30 SHARED", "$-1\r\n")
			other.Expect("LOCK doc 30 LIMIT 9 WAIT 0.1", "$-1\r\n")
			reader.Expect(proxytest.Unlock("doc", token), ":0\r\n")
			other.Expect("GET doc", wire.Bulk(value))
		})
	})
}
