//go:build !race

package virtual_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/virtualtest"
	"lockproxy/internal/test/wire"
)

// Repeated takeovers of locks don't multiply the checks in the grace period.
func TestAttackTakeoverStorm(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server, p := virtualtest.StartBoth(t)
		c := proxytest.Dial(t, p.Addr)
		server.Ask("SET", "job", "1000000000")
		before := server.Scripts()
		const n = 200
		for range n {
			c.Lock("job 30")
			c.Expect("UNLOCK job", ":1\r\n")
		}
		time.Sleep(2200 * time.Millisecond)
		if scripts := server.Scripts() - before; scripts > 3*n {
			t.Errorf("%d scripts for %d locks", scripts, n)
		}
	})
}

// Clients hang up and upstream connections break at any point. No two hold the lock at once, and it
// is never unheld for long.
func TestAttackChaos(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		_, relay, p := attackBoth(t)
		proxies := []*proxytest.Proxy{p, proxytest.Start(t, "redis://"+relay.addr, nil)}
		began := time.Now()
		type span struct {
			token    int64
			from, to time.Time
		}
		var (
			mu    sync.Mutex
			spans []span
			wg    sync.WaitGroup
		)
		const enough = 50
		more := func() bool {
			mu.Lock()
			defer mu.Unlock()
			took := time.Since(began)
			return took < time.Second
		}
		wg.Go(func() {
			for more() {
				time.Sleep(25 * time.Millisecond)
				relay.cutAny()
			}
		})
		for i := range 12 {
			wg.Go(func() {
				random := rand.New(rand.NewPCG(uint64(i), 1))
				var c *proxytest.Conn
				for more() {
					if c == nil {
						c = proxytest.Dialed(t, proxytest.DialRaw(t, proxies[i%2].Addr))
					}
					wait := []string{"0.005", "0.05", "0", "10"}[random.IntN(4)]
					c.Write(wire.Append(nil, "LOCK", "job", "60", "SESSION", "WAIT", wait))
					if random.IntN(10) == 0 {
						time.Sleep(rand.N(20 * time.Millisecond))
						c.Close()
						c = nil
						continue
					}
					got, err := c.TryReply()
					s := span{from: time.Now()}
					if err == nil && got[0] == ':' {
						s.token = proxytest.Token(t, got)
						time.Sleep(rand.N(2 * time.Millisecond))
						s.to = time.Now()
						how := []string{"", "FORCE"}[random.IntN(2)]
						c.Write(wire.Append(nil, strings.Fields("UNLOCK job "+how)...))
						if got, err = c.TryReply(); got == ":1\r\n" && how == "" {
							mu.Lock()
							spans = append(spans, s)
							mu.Unlock()
						}
					}
					if err != nil || got[0] == '-' {
						if proxytest.IsTimeout(err) {
							t.Errorf("client %d has waited and got nothing", i)
						}
						c.Close()
						c = nil
					}
				}
				if c != nil {
					c.Close()
				}
			})
		}
		wg.Wait()
		slices.SortFunc(spans, func(a, b span) int { return a.from.Compare(b.from) })
		longest := time.Duration(0)
		for i := 1; i < len(spans); i++ {
			if spans[i].from.Before(spans[i-1].to) || spans[i].token <= spans[i-1].token {
				t.Errorf("two holders: %v, %v", spans[i-1], spans[i])
			}
			longest = max(longest, spans[i].from.Sub(spans[i-1].to))
		}
		t.Logf("%d locks, the longest time without one %v", len(spans), longest)
		if len(spans) < enough || longest > 1500*time.Millisecond {
			t.Errorf("%d locks, the longest time without one %v", len(spans), longest)
		}
	})
}
