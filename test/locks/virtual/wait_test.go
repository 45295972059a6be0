//go:build !race

package virtual_test

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"lockproxy/internal/test/badlink"
	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/virtualnet"
	"lockproxy/internal/test/virtualtest"
	"lockproxy/lockcmd/keyname"
	"lockproxy/proxy"
)

func TestWaitersAreServedInOrder(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		_, p := virtualtest.StartBoth(t)
		holder := proxytest.Dial(t, p.Addr)
		token := holder.Lock("job 30")
		const n = 20
		order := make(chan int, n)
		var wg sync.WaitGroup
		for i := range n {
			c := proxytest.Dial(t, p.Addr)
			c.Send("LOCK job 30 WAIT 20")
			proxytest.AwaitWaiters(t, p, "job", i+1)
			wg.Go(func() {
				got := c.Reply()
				order <- i
				if got[0] != ':' {
					t.Errorf("waiter %d: %q", i, got)
				}
				c.Expect("UNLOCK job", ":1\r\n")
			})
		}
		start := time.Now()
		holder.Expect(proxytest.Unlock("job", token), ":1\r\n")
		wg.Wait()
		if took := time.Since(start); took > time.Second {
			t.Errorf("%d hand-overs took %v", n, took)
		}
		close(order)
		want := 0
		for got := range order {
			if got != want {
				t.Errorf("waiter %d was served as number %d", got, want)
			}
			want++
		}
	})
}

func TestWaitEnds(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server, p := virtualtest.StartBoth(t)
		a, b := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
		a.Lock("job 30")
		start := time.Now()
		b.Expect("LOCK job 30 WAIT 0.1", "$-1\r\n")
		if took := time.Since(start); took < 100*time.Millisecond ||
			took > 200*time.Millisecond {
			t.Errorf("a wait of 0.1 s took %v", took)
		}
		b.Expect("HELLO 3", "%7…")
		b.Expect("LOCK job 30 WAIT 0.01", "_\r\n")

		// The holder's timeout ends the wait, and a DEL, which sends no notification, within 250
		// ms.
		a.Expect("UNLOCK job", ":1\r\n")
		start = time.Now()
		a.Lock("job 0.15")
		b.Lock("job 30 WAIT 5")
		if took := time.Since(start); took < 145*time.Millisecond ||
			took > 190*time.Millisecond {
			t.Errorf("a lock of 0.15 s was given to the next after %v", took)
		}
		// Not this lock: if it was still there as it expired, it was taken over, and a DEL is
		// undone.
		b.Lock("deleted 30")
		a.Send("LOCK deleted 30 WAIT 5")
		proxytest.AwaitWaiters(t, p, "deleted", 1)
		start = time.Now()
		if err := proxytest.GoRedis(t, server.Addr()).Del(proxytest.Ctx, "deleted").Err(); err != nil {
			t.Fatal(err)
		}
		if got := a.Reply(); got[0] != ':' ||
			time.Since(start) > 250*time.Millisecond {
			t.Errorf("%q %v after DEL", got, time.Since(start))
		}

		for command, want := range map[string]string{
			"LOCK k x WAIT 1":              outOfRange("x"),
			"LOCK k2 1 wait 1 session":     ":…",
			"RELOCK k":                     "-ERR wrong number of arguments for 'relock' command; see LOCK HELP\r\n",
			"RELOCK k 1 0":                 outOfRange("0"),
			"LOCKINFO":                     "-ERR wrong number of arguments for 'lockinfo' command; see LOCK HELP\r\n",
			"LOCKSCAN x":                   "-ERR invalid cursor\r\n",
			"FENCE k 1":                    "-ERR wrong number of arguments for 'fence' command; see LOCK HELP\r\n",
			"FENCE k 1 MULTI":              "-ERR 'multi' can't be fenced…",
			"FENCE k 1 LOCK a 1":           "-ERR 'lock' can't be fenced…",
			"FENCE k 1 BLPOP a 1":          "-ERR 'blpop' can't be fenced: it blocks…",
			"LOCK job 1 OWNER a WAIT 0.01": "_\r\n",
		} {
			b.Expect(command, want)
		}
	})
}

// Commands pipelined before a wait are answered before it ends, and commands after it later.
func TestWaitKeepsItsPlaceInThePipeline(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		_, p := virtualtest.StartBoth(t)
		a, b := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
		a.Lock("job 30")
		b.Send("SET x 1", "LOCK job 30 WAIT 5", "INCR x", "UNLOCK job")
		if got := b.Reply(); got != "+OK\r\n" {
			t.Fatalf("SET: %q", got)
		}
		time.Sleep(20 * time.Millisecond)
		a.Expect("GET x", "$1\r\n1\r\n")
		a.Expect("UNLOCK job", ":1\r\n")
		for _, want := range []string{":1", ":2\r\n", ":1\r\n"} {
			if got := b.Reply(); !strings.HasPrefix(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
		}
	})
}

// A client that closes its sending side after its LOCK, as printf … | nc does, is answered if the
// lock is free, with or without WAIT. It doesn't queue for one that is held.
func TestHalfClosedClient(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		_, p := virtualtest.StartBoth(t)
		holder := proxytest.Dial(t, p.Addr)
		for i, command := range []string{"LOCK job 10", "LOCK job 10 WAIT 5",
			"LOCK job 10 WAIT 5 SESSION"} {
			c := proxytest.Dial(t, p.Addr)
			c.WriteRaw(command + "\r\n")
			c.Conn.(*virtualnet.Conn).CloseWrite()
			token := proxytest.Token(t, c.Reply())
			if i == 2 { // the connection has ended
				holder.Lock("job 10 WAIT 1")
				holder.Expect("UNLOCK job", ":1\r\n")
				continue
			}
			holder.Expect(proxytest.Unlock("job", token), ":1\r\n")
		}

		holder.Lock("job 30")
		c := proxytest.Dial(t, p.Addr)
		c.WriteRaw("LOCK job 10 WAIT 5\r\n")
		c.Conn.(*virtualnet.Conn).CloseWrite()
		if got := c.Reply(); !strings.HasPrefix(got, "-TRYAGAIN ") || !strings.Contains(got, "closed") {
			t.Errorf("the lock is held: %q", got)
		}
		testwait.Until(t, "the client has left the queue", func() bool {
			return proxytest.Waiters(t, p, "job") == 0
		})
	})
}

// All that a client has sent before it closes its sending side is run, though Redis takes a while
// to answer what has to be answered before the rest is asked.
func TestHalfClosedClientOfASlowRedis(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		link := proxytest.LinkTo(t, virtualtest.StartStore(t))
		p := proxytest.Start(t, "redis://"+link.Addr(), nil)
		proxytest.Dial(t, p.Addr).Expect("PING", "+PONG\r\n")
		link.Away(2 * time.Second)
		c := proxytest.Dial(t, p.Addr)
		c.WriteRaw("SET k v\r\nAUTH x\r\nGET k\r\nAUTH x\r\nSTRLEN k\r\n")
		c.Conn.(*virtualnet.Conn).CloseWrite()
		c.WantReply("+OK\r\n")
		for _, want := range []string{"$1\r\nv\r\n", ":1\r\n"} {
			if got := c.Reply(); got[0] != '-' {
				t.Errorf("AUTH: %q", got)
			}
			c.WantReply(want)
		}
	})
}

// A request that blocks is given up sooner than others: it could take an element for nobody.
func TestHalfClosedClientThatBlocks(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		link := proxytest.LinkTo(t, virtualtest.StartStore(t))
		p := proxytest.Start(t, "redis://"+link.Addr(), func(cfg *proxy.Config) {
			cfg.Dedicated = true
		})
		patient, blocked := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
		for _, c := range []*proxytest.Conn{patient, blocked} {
			c.Expect("LLEN list", ":0\r\n")
		}
		link.Set(badlink.State{HoldDn: true})
		for _, c := range []*proxytest.Conn{patient, blocked} {
			first := map[bool]string{true: "BLPOP list 0", false: "LLEN list"}[c == blocked]
			text := first + "\r\nAUTH x\r\nGET k\r\n"
			read := p.Server.Stats().BytesIn + uint64(len(text))
			c.WriteRaw(text)
			c.Conn.(*virtualnet.Conn).CloseWrite()
			testwait.Until(t, "the proxy has read it", func() bool {
				return p.Server.Stats().BytesIn == read
			})
		}
		// Redis is silent. What it owes to a client that does not block is waited for longer.
		blocked.Closed()
		synctest.Wait() // until it is counted
		if got := p.Server.Stats().Clients; got != 1 {
			t.Errorf("%d clients are left, want the one that does not block", got)
		}
	})
}

// A grant whose message was lost is found by its waiter.
func TestLostGrantIsFound(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server, p := virtualtest.StartBoth(t)
		holder, next := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
		holder.Lock("job 30")
		next.Send("LOCK job 30 WAIT 5")
		proxytest.AwaitWaiters(t, p, "job", 1)
		// A release that named it would have written this: its connection and request.
		direct := proxytest.GoRedis(t, server.Addr())
		fields := strings.Fields(direct.Get(proxytest.Ctx, keyname.Record([]byte("job"))).Val())
		prefix, number, _ := strings.Cut(fields[8], "-")
		n, _ := strconv.Atoi(number)
		granted, _ := strconv.ParseInt(fields[1], 10, 64)
		fields[1], fields[8], fields[9] = strconv.FormatInt(granted+7, 10),
			fmt.Sprintf("%s-%d", prefix, n+1), "1"
		direct.Set(proxytest.Ctx, keyname.Record([]byte("job")), strings.Join(fields, " ")+"\n",
			time.Minute)
		if got, want := next.Reply(), fmt.Sprintf(":%d\r\n", granted+7); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// An UNLOCK that releases nothing wakes the first waiter. However many there are, the waiter polls
// in time, and finds that the holder's lease is over.
func TestUnlocksInVainDelayNoWaiter(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		_, p := virtualtest.StartBoth(t)
		proxytest.Dial(t, p.Addr).Lock("job 1")
		waiter, other := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
		waiter.Send("LOCK job 30 WAIT 10")
		proxytest.AwaitWaiters(t, p, "job", 1)
		served := make(chan struct{})
		go func() { // ends with the wait
			defer close(served)
			if got := waiter.Reply(); got[0] != ':' {
				t.Errorf("the waiter was not served: %q", got)
			}
		}()
		for {
			other.Expect("UNLOCK job 12345", ":0\r\n")
			select {
			case <-served:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
}
