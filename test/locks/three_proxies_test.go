package locks_test

import (
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lockproxy/internal/proxytest"
	"lockproxy/internal/testredis"
	"lockproxy/internal/testwait"
)

// crowd is clients of several proxies that take one lock in turns, until stop.
type crowd struct {
	judge   *judge
	counts  []atomic.Int64 // acquisitions, by client
	lastAt  atomic.Int64   // of the last acquisition, Unix ns
	longest atomic.Int64   // wait, ns
	stopped chan struct{}
	running sync.WaitGroup
}

// crowdTimeout is the timeout of its locks: how long the others wait if a holder is killed.
const crowdTimeout = time.Second

func startCrowd(t *testing.T, clients int, addr func(i int) string) *crowd {
	c := &crowd{judge: newJudge(), counts: make([]atomic.Int64, clients),
		stopped: make(chan struct{})}
	for i := range clients {
		c.running.Go(func() { c.client(t, i, addr(i)) })
	}
	return c
}

// client ends when its proxy does.
func (c *crowd) client(t *testing.T, i int, addr string) {
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Error(err)
		return
	}
	defer nc.Close()
	conn := proxytest.Dialed(t, nc)
	for {
		select {
		case <-c.stopped:
			return
		default:
		}
		asked := time.Now()
		fmt.Fprintf(nc, "LOCK job %v WAIT 20\r\n", crowdTimeout.Seconds())
		got, err := conn.TryReply()
		if err != nil {
			return
		}
		if got[0] != ':' {
			t.Errorf("client %d: %q", i, got)
			return
		}
		token := proxytest.Token(t, got)
		c.judge.took("job", token, crowdTimeout)
		c.lastAt.Store(time.Now().UnixNano())
		c.longest.Store(max(c.longest.Load(), int64(time.Since(asked))))
		c.counts[i].Add(1)
		time.Sleep(time.Millisecond)
		// the next holder can have its token before this client has its reply
		c.judge.frees("job", token)
		fmt.Fprintf(nc, "UNLOCK job %d\r\n", token)
		if got, err := conn.TryReply(); err == nil && got != ":1\r\n" {
			t.Errorf("client %d: UNLOCK: %q", i, got)
		}
	}
}

func (c *crowd) stop() {
	close(c.stopped)
	c.running.Wait()
}

func (c *crowd) snapshot() []int {
	list := make([]int, len(c.counts))
	for i := range list {
		list[i] = int(c.counts[i].Load())
	}
	return list
}

// Three lockproxy processes in front of one upstream, with no configuration between them: each lock
// has one holder, all clients take turns, and when one proxy is killed the others continue.
func TestThreeProxies(t *testing.T) {
	redis := testredis.Start(t)
	var proxies []*proxytest.Process
	for range 3 {
		proxies = append(proxies, proxytest.StartProcess(t, "--upstream", redis.URL()))
	}
	const clients = 12
	c := startCrowd(t, clients, func(i int) string { return proxies[i%3].Addr })
	time.Sleep(2 * time.Second)
	before := c.snapshot()
	sum, ratio := fairness(before)
	t.Logf("three proxies, %d clients: %d acquisitions/s, fewest/most %.2f, longest wait %v",
		clients, sum/2, ratio, time.Duration(c.longest.Load()))
	if ratio < 0.5 || sum < 5*clients {
		t.Errorf("acquisitions by client: %v", before)
	}

	proxies[0].Cmd.Process.Kill()
	<-proxies[0].Exit
	killed := time.Now()
	last := c.lastAt.Load()
	// Its clients can have held the lock, or a reservation: both expire.
	testwait.Until(t, "the others continue", func() bool {
		return c.lastAt.Load() > last && c.lastAt.Load() > killed.UnixNano()
	})
	t.Logf("one of them killed: the next acquisition %v later",
		time.Since(killed).Round(time.Millisecond))
	time.Sleep(2 * time.Second)
	c.longest.Store(0)
	middle := c.snapshot()
	time.Sleep(3 * time.Second) // a busy machine can stop one of the processes for a part of it
	c.stop()
	var left []int
	for i, n := range c.snapshot() {
		if i%3 != 0 {
			left = append(left, n-middle[i])
		}
	}
	sum, ratio = fairness(left)
	t.Logf("two left: %d acquisitions/s, fewest/most %.2f, longest wait %v", sum/3, ratio,
		time.Duration(c.longest.Load()))
	if ratio < 0.5 || sum < 6*len(left) {
		t.Errorf("acquisitions by client of the two left: %v", left)
	}
	if len(c.judge.violations) > 0 || len(c.judge.backward) > 0 {
		t.Errorf("two holders at a time: %q, tokens that went back: %q", c.judge.violations,
			c.judge.backward)
	}
}
