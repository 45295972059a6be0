package real_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/proxy"
)

// sessionsAtWork is how many goroutines serve clients.
func sessionsAtWork() (n int) {
	stacks := make([]byte, 16<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	for stack := range strings.SplitSeq(string(stacks), "\n\n") {
		if strings.Contains(stack, "proxy.(*session).Resume") {
			n++
		}
	}
	return n
}

// No goroutine waits with a client for others, whichever command waits.
func TestAWaitHasNoGoroutine(t *testing.T) { // not parallel: goroutines are counted
	for _, by := range []testredis.Transport{testredis.TCP, testredis.TLS} {
		t.Run(string(by), func(t *testing.T) { waitWithoutGoroutine(t, by) })
	}
}

func waitWithoutGoroutine(t *testing.T, by testredis.Transport) {
	p := proxytest.StartBy(t, by, testredis.Start(t).URL(), func(cfg *proxy.Config) {
		cfg.Park, cfg.ParkKeys = testwait.Patience, "*"
	})
	holder := proxytest.Dial(t, p.Addr)
	lock, all := holder.Lock("lock 300"), holder.Lock("all 300")
	once := proxytest.Token(t, holder.Do("ONCE once 300"))
	holder.Expect("SET set v NX PX 300000", "+OK\r\n")
	var clients []*proxytest.Conn
	waits := func(command string) *proxytest.Conn {
		c := proxytest.Dial(t, p.Addr)
		c.Expect("PING", "+PONG\r\n")
		c.Send(command)
		clients = append(clients, c)
		return c
	}
	for range 5 {
		waits("LOCK lock 300 WAIT 0")
		waits("LOCKALL 300 2 all other WAIT 300")
		waits("ONCE once 300 WAIT 0")
	}
	park := waits("SET set w NX PX 300000")
	proxytest.AwaitWaiters(t, p, "lock", 5)
	proxytest.AwaitWaiters(t, p, "all", 5)
	testwait.Until(t, "no goroutine serves a client that waits", func() bool {
		return sessionsAtWork() == 0
	})
	gone := clients[0]
	gone.Close() // an end is seen nevertheless
	proxytest.AwaitWaiters(t, p, "lock", 4)

	holder.Expect("DEL set", ":1\r\n")
	park.WantReply("+OK\r\n")
	holder.Expect(proxytest.Unlock("lock", lock), ":1\r\n")
	holder.Expect(proxytest.Unlock("all", all), ":1\r\n")
	holder.Expect(fmt.Sprintf("DONE once %d value", once), ":1\r\n")
	for i := 3; i < 15; i += 3 {
		if got := clients[i].Reply(); got[0] != ':' {
			t.Errorf("LOCK: %q", got)
		} else {
			clients[i].Expect("UNLOCK lock", ":1\r\n")
		}
	}
	for i := 1; i < 15; i += 3 {
		token := proxytest.Token(t, clients[i].Reply())
		clients[i].Expect(fmt.Sprintf("UNLOCKALL %d 2 all other", token), ":2\r\n")
		clients[i+1].WantReply("$5\r\nvalue\r\n")
	}
}

// Requests behind a wait are kept as they were sent, of any size and in any number of pieces. They
// are answered in order once the wait has ended.
func TestPipelineBehindAWait(t *testing.T) {
	t.Parallel()
	_, p := proxytest.StartBoth(t)
	holder, c := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	token, fence := holder.Lock("job 300"), holder.Lock("fence 300")
	c.Send("LOCK job 300 WAIT 0")
	proxytest.AwaitWaiters(t, p, "job", 1)
	const commands, size = 40, 6000 // more than is kept in a buffer
	var want []string
	sent := make(chan struct{})
	go func() { // ends once all is read
		defer close(sent)
		for i := range commands {
			value := strings.Repeat(string(rune('a'+i%26)), size)
			c.Send(fmt.Sprintf("FENCE fence %d SET key%d %s", fence, i, value),
				fmt.Sprintf("GET key%d", i), fmt.Sprintf("LOCK other%d 300 OWNER owner%d", i, i),
				fmt.Sprintf("UNLOCK other%d", i))
		}
	}()
	for i := range commands {
		value := strings.Repeat(string(rune('a'+i%26)), size)
		want = append(want, "+OK\r\n", fmt.Sprintf("$%d\r\n%s\r\n", size, value), ":", ":1\r\n")
	}
	if c.Arrived() {
		t.Error("something is answered before the wait has ended")
	}
	holder.Expect(proxytest.Unlock("job", token), ":1\r\n")
	if got := c.Reply(); got[0] != ':' {
		t.Errorf("the wait: %q", got)
	}
	for i, prefix := range want {
		if got := c.Reply(); !strings.HasPrefix(got, prefix) {
			t.Fatalf("reply %d is %.60q; want %.60q", i, got, prefix)
		}
	}
	<-sent
}

// A client behind whose wait more has come than can be read is gone: it leaves the line.
func TestAFullPipelineHangsUp(t *testing.T) {
	t.Parallel()
	_, p := proxytest.StartBoth(t)
	holder, c := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	holder.Lock("job 300")
	c.Send("LOCK job 300 WAIT 0")
	proxytest.AwaitWaiters(t, p, "job", 1)
	c.Send("SET key " + strings.Repeat("x", 100_000))
	c.Close()
	proxytest.AwaitWaiters(t, p, "job", 0)
}
