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

// sharedGrant is a lock that a client was given.
type sharedGrant struct {
	token                  int64
	asked, given, released time.Time
	arrived                time.Time // at its proxy; zero if unknown
}

// A writer waits no longer than the readers that were there before it, although 20 come again and
// again: none that asked after it goes first, and it has the lock as soon as those have gone.
func TestWriterIsNotStarvedByReaders(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		withTwo(t, func(t *testing.T, dial func(int) *proxytest.Conn) {
			const readers, rounds = 20, 6
			var grants [readers][]sharedGrant
			stop := make(chan struct{})
			var running sync.WaitGroup
			t.Cleanup(running.Wait) // before the connections close
			end := sync.OnceFunc(func() { close(stop) })
			t.Cleanup(end)
			for i := range readers {
				c := dial(i)
				running.Go(func() { // ends with stop
					for {
						select {
						case <-stop:
							return
						default:
						}
						g := sharedGrant{asked: time.Now()}
						g.token = readToken(c.Do("LOCK doc 30 SHARED WAIT 20"))
						g.given = time.Now()
						time.Sleep(5*time.Millisecond + rand.N(30*time.Millisecond))
						if got := c.Do(proxytest.Unlock("doc", g.token)); got != ":1\r\n" {
							t.Errorf("UNLOCK of token %d: %q", g.token, got)
							return
						}
						g.released = time.Now()
						grants[i] = append(grants[i], g)
					}
				})
			}
			writer := dial(1)
			probe := dial(1)
			farther := dial(0).RemoteAddr().String() != probe.RemoteAddr().String()
			var written []sharedGrant
			for range rounds {
				time.Sleep(rand.N(60 * time.Millisecond))
				w := sharedGrant{asked: time.Now()}
				writer.Send("LOCK doc 30 WAIT 20 OWNER writer")
				for !strings.Contains(probe.Do("LOCKINFO doc WAITERS")+probe.Do("LOCKINFO doc"),
					"writer") {
					time.Sleep(time.Millisecond)
				}
				w.arrived = time.Now()
				w.token = proxytest.Token(t, writer.Reply())
				w.given = time.Now()
				time.Sleep(5 * time.Millisecond)
				writer.Expect(proxytest.Unlock("doc", w.token), ":1\r\n")
				w.released = time.Now()
				written = append(written, w)
			}
			end()
			running.Wait()
			reads, slowest, slack := 0, time.Duration(0), time.Duration(0)
			if farther { // until the other proxy can know of the writer
				slack = 100 * time.Millisecond
			}
			for _, w := range written {
				last := w.asked // when the readers before it had gone
				for i := range grants {
					for _, g := range grants[i] {
						reads++
						if g.token > w.token {
							continue
						}
						if g.released.After(last) {
							last = g.released
						}
						if g.asked.After(w.arrived.Add(slack)) {
							t.Errorf("a reader that asked %v after the writer had arrived was served "+
								"before it", g.asked.Sub(w.arrived))
						}
					}
				}
				slowest = max(slowest, w.given.Sub(last))
			}
			if slowest > 300*time.Millisecond {
				t.Errorf("the writer got the lock up to %v after the last reader before it had gone",
					slowest)
			}
			if reads/rounds < 2*readers {
				t.Errorf("only %d reads next to %d writes", reads/rounds, rounds)
			}
			t.Logf("%d reads, %d writes; the writer got the lock at most %v after the readers "+
				"before it", reads/rounds, rounds, slowest)
		})
	})
}

// readToken is the token of a reply, 0 for none.
func readToken(reply string) (token int64) {
	fmt.Sscanf(reply, ":%d\r\n", &token)
	return token
}
