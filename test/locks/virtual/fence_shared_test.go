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

	"lockproxy/internal/test/badlink"
	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/virtualtest"
)

// Forty other holders come and go, through one and two proxies, and each changes what the
// lock's keys hold. Then FENCE begins again. It is never refused as if the token were over, and
// what it says of the command is true.
func TestFenceWhileOtherHoldersComeAndGo(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		for _, proxies := range []int{1, 2} {
			server := virtualtest.StartStore(t)
			var addrs []string
			for range proxies { // it takes time to ask Redis
				link := proxytest.LinkTo(t, server)
				link.Away(time.Millisecond)
				addrs = append(addrs, proxytest.Start(t, "redis://"+link.Addr(), nil).Addr)
			}
			dial := func(i int) *proxytest.Conn { return proxytest.Dial(t, addrs[i%proxies]) }
			const others, times = 40, 20
			var pause atomic.Int64 // at most, of the others; longer while no FENCE runs
			pause.Store(int64(100 * time.Millisecond))
			some := func() time.Duration { return rand.N(time.Duration(pause.Load())) }
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
						case <-time.After(some()):
						}
						got := c.Do("LOCK doc 30 " + kind)
						given := readToken(got)
						if given == 0 {
							t.Errorf("LOCK: %q", got)
							return
						}
						time.Sleep(some())
						if got := c.Do(proxytest.Unlock("doc", given)); got != ":1\r\n" {
							t.Errorf("UNLOCK: %q", got)
							return
						}
					}
				})
			}
			ran, changed := 0, 0
			for began := time.Now(); ran+changed < times && (ran == 0 && changed < 10 ||
				time.Since(began) < 10*time.Second); {
				holder.Send(fmt.Sprintf("FENCE doc %d INCR n", token))
				got, err := holder.TryReply()
				switch {
				case err != nil:
					t.Fatal(err)
				case got == fmt.Sprintf(":%d\r\n", ran+1):
					ran++
				case strings.HasPrefix(got, "-ERR the lock is being changed all the time: "):
					changed++
					if ran == 0 {
						pause.Store(min(2*pause.Load(), int64(2*time.Second))) // they hold for 30 s
					}
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
		}
	})
}

// Far from Redis, FENCE of a lock whose holders change all the time tries for a while only, and no
// longer than its client is there: a session lock must end with it.
func TestFenceGivesUp(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server := virtualtest.StartStore(t)
		near, link := proxytest.Start(t, server.URL(), nil), proxytest.LinkTo(t, server)
		far := proxytest.Start(t, "redis://"+link.Addr(), nil)
		other := proxytest.Dial(t, near.Addr)
		changed := other.Lock("doc 600 SHARED")
		stays, leaves := proxytest.Dial(t, far.Addr), proxytest.Dial(t, far.Addr)
		token := stays.Lock("doc 600 SHARED")
		session := leaves.Lock("doc 600 SHARED SESSION")
		link.Set(badlink.State{Latency: 25 * time.Millisecond})
		stop, stopped := make(chan struct{}), make(chan struct{})
		t.Cleanup(func() { close(stop); <-stopped })
		go func() { // ends with stop
			defer close(stopped)
			for {
				select {
				case <-stop:
					return
				case <-time.After(5 * time.Millisecond):
					other.Do(fmt.Sprintf("RELOCK doc %d %d", changed, 500+rand.N(100)))
				}
			}
		}()
		began := time.Now()
		stays.Expect(fmt.Sprintf("FENCE doc %d INCR n", token), "-ERR the lock is being changed …")
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("FENCE gave up after %v", took)
		}
		leaves.Send(fmt.Sprintf("FENCE doc %d INCR n", session))
		time.Sleep(300 * time.Millisecond)
		leaves.Close()
		closed := time.Now()
		admin := proxytest.Dial(t, near.Addr)
		testwait.Until(t, "the session lock is free", func() bool {
			return !strings.Contains(admin.Do("LOCKINFO doc HOLDERS"), fmt.Sprint(session))
		})
		if took := time.Since(closed); took > time.Second {
			t.Errorf("the session lock was released after %v", took)
		}
	})
}
