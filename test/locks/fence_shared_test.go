package locks_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"lockproxy/internal/proxytest"
)

// A hundred other holders come and go, through one and two proxies, and each changes what the
// lock's keys hold. Then FENCE begins again. It is never refused as if the token were over, and
// what it says of the command is true.
func TestFenceWhileOtherHoldersComeAndGo(t *testing.T) {
	t.Parallel()
	withTwo(t, func(t *testing.T, dial func(int) *proxytest.Conn) {
		const others, times = 100, 200
		holder := dial(0)
		token := holder.Lock("doc 600 SHARED")
		stop := make(chan struct{})
		var running sync.WaitGroup
		t.Cleanup(running.Wait) // before the connections close
		end := sync.OnceFunc(func() { close(stop) })
		t.Cleanup(end)
		for i := range others {
			c, kind := dial(i), []string{"SHARED", "LIMIT 200"}[i/2%2]
			running.Go(func() { // ends with stop
				for {
					select {
					case <-stop:
						return
					case <-time.After(rand.N(100 * time.Millisecond)):
					}
					got := c.Do("LOCK doc 30 " + kind)
					given := readToken(got)
					if given == 0 {
						t.Errorf("LOCK: %q", got)
						return
					}
					time.Sleep(rand.N(100 * time.Millisecond))
					if got := c.Do(proxytest.Unlock("doc", given)); got != ":1\r\n" {
						t.Errorf("UNLOCK: %q", got)
						return
					}
				}
			})
		}
		ran, changed := 0, 0
		for began := time.Now(); ran+changed < times && time.Since(began) < 10*time.Second; {
			holder.Send(fmt.Sprintf("FENCE doc %d INCR n", token))
			got, err := holder.TryReply(time.Minute) // a busy machine needs longer for its tries
			switch {
			case err != nil:
				t.Fatal(err)
			case got == fmt.Sprintf(":%d\r\n", ran+1):
				ran++
			case strings.HasPrefix(got, "-ERR the lock is being changed all the time: "):
				changed++
			default:
				t.Fatalf("FENCE after %d that ran: %q", ran, got)
			}
		}
		end()
		running.Wait()
		t.Logf("%d ran, %d were told to try again", ran, changed)
		if ran == 0 {
			t.Error("none ran")
		}
		holder.Expect(fmt.Sprintf("FENCE doc %d INCR n", token), fmt.Sprintf(":%d\r\n", ran+1))
		holder.Expect(proxytest.Unlock("doc", token), ":1\r\n")
		holder.Expect(fmt.Sprintf("FENCE doc %d INCR n", token), "-FENCED …")
	})
}
