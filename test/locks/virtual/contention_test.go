//go:build !race

package virtual_test

import (
	"sync"
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/virtualtest"
)

// fight lets clients take and release one lock for a time and returns how often each had it.
func fight(t *testing.T, d time.Duration, clients int,
	addr func(i int) string) (counts []int, longest, mean time.Duration) {
	counts = make([]int, clients)
	var inside, mu sync.Mutex
	var total time.Duration
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range clients {
		nc := proxytest.DialRaw(t, addr(i))
		c := proxytest.Dialed(t, nc)
		wg.Go(func() {
			defer nc.Close()
			<-start
			for end := time.Now().Add(d); time.Now().Before(end); counts[i]++ {
				asked := time.Now()
				c.Lock("job 30 WAIT 30")
				waited := time.Since(asked)
				if !inside.TryLock() {
					t.Error("two clients hold the lock")
					return
				}
				inside.Unlock()
				c.Expect("UNLOCK job", ":1\r\n")
				mu.Lock()
				longest, total = max(longest, waited), total+waited
				mu.Unlock()
			}
		})
	}
	close(start)
	wg.Wait()
	n := 0
	for _, c := range counts {
		n += c
	}
	return counts, longest, total / time.Duration(max(n, 1))
}

func fairness(counts []int) (sum int, ratio float64) {
	fewest, most := counts[0], 0
	for _, n := range counts {
		sum, fewest, most = sum+n, min(fewest, n), max(most, n)
	}
	return sum, float64(fewest) / float64(max(most, 1))
}

// Forty clients of one proxy or of two take one lock in turns. None waits for long, each has it
// about as often, and a turn costs little more than two scripts.
func TestContention(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server := virtualtest.StartStore(t)
		near := func() *proxytest.Proxy { // it takes time to ask Redis
			link := proxytest.LinkTo(t, server)
			link.Away(4 * time.Millisecond)
			return proxytest.Start(t, "redis://"+link.Addr(), nil)
		}
		one, two := near(), near()
		const clients, lasts = 40, 3 * time.Second
		for _, proxies := range [][]*proxytest.Proxy{{one}, {one, two}} {
			before := server.Scripts()
			counts, longest, mean := fight(t, lasts, clients, func(i int) string {
				return proxies[i%len(proxies)].Addr
			})
			after := server.Scripts()
			sum, ratio := fairness(counts)
			perAcquisition := float64(after-before) / float64(max(sum, 1))
			t.Logf(
				"%d proxies: %d acquisitions, fewest/most %.2f, %.2f scripts each, wait mean %v, "+
					"longest %v",
				len(proxies), sum, ratio, perAcquisition, mean, longest)
			if want := []float64{0, 0.8, 0.5}[len(proxies)]; ratio < want {
				t.Errorf("fewest/most is %.2f, want %.1f", ratio, want)
			}
			if perAcquisition > 2.2 {
				t.Errorf("%.2f scripts per acquisition", perAcquisition)
			}
			// 5 times the mean is the aim; a poll interval can be lost once.
			if longest > 5*mean+250*time.Millisecond {
				t.Errorf("longest wait %v, mean %v", longest, mean)
			}
		}
	})
}

// A thousand waiters cost no more than the first of them, which is answered at once.
func TestManyWaitersCostNothing(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server, p := virtualtest.StartBoth(t)
		holder := proxytest.Dial(t, p.Addr)
		holder.Lock("job 60")
		var first []*proxytest.Conn // in the queue
		for i := range 5 {
			first = append(first, proxytest.Dial(t, p.Addr))
			first[i].Send("LOCK job 60 WAIT 0")
			proxytest.AwaitWaiters(t, p, "job", i+1)
		}
		for range 1000 - len(first) {
			proxytest.Dial(t, p.Addr).Send("LOCK job 60 WAIT 0")
		}
		testwait.Until(t, "all wait", func() bool {
			return proxytest.Waiters(t, p, "job") == 1000
		})
		before := server.Scripts()
		time.Sleep(2 * time.Second)
		// One waiter polls, each 210 ms at most.
		if polls := server.Scripts() - before; polls > 10 {
			t.Errorf("1,000 waiters ask for %d scripts in 2 s", polls)
		}
		for _, next := range first {
			start := time.Now()
			holder.Send("UNLOCK job")
			if got := next.Reply(); got[0] != ':' {
				t.Errorf("%q", got)
			}
			if took := time.Since(start); took > 0 {
				t.Errorf("the first waiter was answered after %v", took)
			}
			holder = next
		}
	})
}

// Foreign clients that poll and waiters each get their share. One that comes through the proxy is
// noticed at once; one that doesn't is found when a queue leaves the lock free for a moment, as it
// does once a second.
func TestForeignClientsAndWaiters(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server, p := virtualtest.StartBoth(t)
		virtualtest.Part(t, "through the proxy", func(t *testing.T) {
			foreign, ours := countForeignClient(t, p, p.Addr)
			if mean := ours / waitersNextToForeign; foreign < mean/3 {
				t.Errorf("the foreign client had the lock %d times, a waiter %d times", foreign, mean)
			}
		})
		virtualtest.Part(t, "directly", func(t *testing.T) { countForeignClient(t, p, server.Addr()) })
	})
}

const waitersNextToForeign = 4

// countForeignClient is how often a client with SETNX and the waiters together get a lock.
func countForeignClient(t *testing.T, p *proxytest.Proxy, addr string) (foreign, ours int) {
	direct := proxytest.GoRedis(t, addr)
	key := "job:" + addr
	var wg sync.WaitGroup
	end := time.Now().Add(2 * time.Second)
	wg.Go(func() {
		for time.Now().Before(end) {
			if direct.SetNX(proxytest.Ctx, key, time.Now().UnixMilli()+5000, 0).Val() {
				foreign++
				time.Sleep(2 * time.Millisecond)
				direct.Del(proxytest.Ctx, key)
			}
			time.Sleep(5 * time.Millisecond)
		}
	})
	counts := make([]int, waitersNextToForeign)
	for i := range counts {
		c := proxytest.GoRedis(t, p.Addr)
		wg.Go(func() {
			for time.Now().Before(end) {
				token, err := c.Do(proxytest.Ctx, "LOCK", key, "5", "WAIT", "10").Int64()
				if err != nil {
					t.Error(err)
					return
				}
				counts[i]++
				time.Sleep(2 * time.Millisecond)
				c.Do(proxytest.Ctx, "UNLOCK", key, token)
			}
		})
	}
	wg.Wait()
	for _, n := range counts {
		ours += n
	}
	t.Logf("foreign %d, waiters %d", foreign, ours)
	if foreign < 3 || ours < 20 {
		t.Errorf("starved: the foreign client had the lock %d times, the waiters %d times", foreign,
			ours)
	}
	return foreign, ours
}
