package locks_test

import (
	"strings"
	"testing"
	"time"

	"lockproxy/internal/proxytest"
	"lockproxy/internal/testredis"
	"lockproxy/internal/testwait"
)

// A client that asks at one proxy all the time gets no lock that runs out or is deleted while
// another client waits for it at another proxy.
func TestLockOvertakesNoWaiterElsewhere(t *testing.T) {
	t.Parallel()
	for name, asks := range map[string]struct{ held, command string }{
		"expiry":          {"0.5", "LOCK {job} 30"},
		"expiry, shared":  {"0.5", "LOCK {job} 30 SHARED"},
		"expiry, LOCKALL": {"0.5", "LOCKALL 30 2 {job}2 {job}"},
		"DEL":             {"30", "LOCK {job} 30"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, p := proxytest.StartBoth(t)
			other := proxytest.Start(t, server.URL(), nil)
			asking, waiter := proxytest.Dial(t, p.Addr), proxytest.Dial(t, other.Addr)
			const rounds = 12
			overtaken := 0
			for range rounds {
				asking.Lock("{job} " + asks.held)
				waiter.Send("LOCK {job} 30 WAIT 10")
				awaitListed(t, asking, "{job}")
				if asks.held == "30" {
					server.Ask("DEL", "{job}")
				}
				served := make(chan string)
				go func() { served <- waiter.Reply() }() // ends when the waiter is served
				for got := ""; got == ""; {
					if reply := asking.Do(asks.command); reply[0] == ':' {
						if inTime(time.Second) {
							overtaken++
						}
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
}

// inTime reports whether the machine is quick enough for a proxy that has so long to ask for a lock,
// or to say that it still waits. Otherwise a waiter there can be overtaken.
func inTime(has time.Duration) bool { return proxytest.Late() < 3*has }

// A waiter that has given up, or gone, keeps nobody at another proxy from a lock that is free.
func TestLockAfterAWaiterElsewhereThatGaveUp(t *testing.T) {
	t.Parallel()
	server, p := proxytest.StartBoth(t)
	other := proxytest.Start(t, server.URL(), nil)
	for name, end := range map[string]struct {
		wait string // arguments
		held string
		end  func(t *testing.T, waiter *proxytest.Conn, lock string)
	}{
		"its time is over": {"WAIT 0.1", "1", func(t *testing.T, w *proxytest.Conn, _ string) {
			w.WantReply("$-1\r\n")
		}},
		"its client has gone": {"WAIT 10", "1", func(t *testing.T, w *proxytest.Conn, _ string) {
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
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const rounds = 8
			for i := range rounds {
				holder, waiter := proxytest.Dial(t, p.Addr), proxytest.Dial(t, other.Addr)
				lock := strings.ReplaceAll(t.Name(), " ", "_") + string(rune('0'+i))
				holder.Lock(lock + " " + end.held)
				waiter.Send("LOCK " + lock + " 30 " + end.wait)
				awaitListed(t, holder, lock)
				end.end(t, waiter, lock)
				isFreeSoon(t, server, holder, lock)
			}
		})
	}
}

// A proxy that has been killed while clients waited there keeps nobody from a free lock for longer
// than a second.
func TestLockAfterAProxyThatHasEnded(t *testing.T) {
	t.Parallel()
	server, p := proxytest.StartBoth(t)
	other := proxytest.StartProcess(t, "--upstream", server.URL())
	holder, waiter := proxytest.Dial(t, p.Addr), proxytest.Dial(t, other.Addr)
	holder.Lock("job 1")
	waiter.Send("LOCK job 30 WAIT 10")
	awaitListed(t, holder, "job")
	other.Cmd.Process.Kill()
	<-other.Exit
	testwait.Until(t, "the lock is free for others", func() bool {
		return holder.Do("LOCK job 30") != "$-1\r\n"
	})
}

// isFreeSoon fails unless a client gets a lock within moments of its end.
func isFreeSoon(t *testing.T, server *testredis.Server, c *proxytest.Conn, lock string) {
	t.Helper()
	testwait.Until(t, "the lock ends", func() bool {
		return server.Ask("EXISTS", lock) == ":0"
	})
	for began := time.Now(); c.Do("LOCK "+lock+" 30") == "$-1\r\n"; {
		if waited := time.Since(began); waited > 50*time.Millisecond+proxytest.Late() {
			t.Fatalf("a free lock that nobody waits for is refused for %v", waited)
		}
	}
}

// awaitListed waits until a proxy can learn from the upstream that clients wait at another.
func awaitListed(t *testing.T, c *proxytest.Conn, lock string) {
	t.Helper()
	testwait.Until(t, "the waiter is known", func() bool {
		return strings.Contains(c.Do("LOCKINFO "+lock+" WAITERS"), "proxy")
	})
}
