package locks_test

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"lockproxy/internal/faults/relay"
	"lockproxy/internal/proxytest"
	"lockproxy/internal/resp"
	"lockproxy/internal/testredis"
	"lockproxy/internal/testwait"
)

// closedAfter sends commands and closes at once: the end arrives before the reply.
func closedAfter(t *testing.T, p *proxytest.Proxy, commands ...string) {
	c := proxytest.Dial(t, p.Addr)
	c.Expect("PING", "+PONG\r\n")
	c.Send(commands...)
	c.Close()
}

// A client that has closed before the token of its lock can have reached it was never the holder.
func TestUndeliveredTokenIsReleased(t *testing.T) {
	t.Parallel()
	_, p := proxytest.StartBoth(t)
	next := proxytest.Dial(t, p.Addr)
	for range 20 {
		closedAfter(t, p, "LOCK job 300") // before the token or just after it
		time.Sleep(2 * time.Millisecond)
		next.Lock("job 300 WAIT 300")
		next.Expect("UNLOCK job", ":1\r\n")
	}
}

// The same holds for each lock of a batch.
func TestUndeliveredTokensAreReleased(t *testing.T) {
	t.Parallel()
	_, p := proxytest.StartBoth(t)
	next := proxytest.Dial(t, p.Addr)
	// read at once: the proxy assumes that later requests were sent after the earlier tokens
	const locks = 20
	var pipeline []string
	for i := range locks {
		pipeline = append(pipeline, fmt.Sprintf("LOCK job:%d 300", i))
	}
	for range 10 {
		closedAfter(t, p, pipeline...)
		time.Sleep(2 * time.Millisecond)
		for i := range locks {
			next.Lock(fmt.Sprintf("job:%d 30 WAIT 300", i))
		}
		for i := range locks {
			next.Expect(fmt.Sprintf("UNLOCK job:%d", i), ":1\r\n")
		}
	}
}

// Likewise while a later command of the client takes longer than a reset may take.
func TestUndeliveredTokenBeforeASlowCommand(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	link := proxytest.LinkTo(t, server)
	p, near := proxytest.Start(t, "redis://"+link.Addr(), nil),
		proxytest.Start(t, server.URL(), nil)
	next := proxytest.Dial(t, near.Addr)
	link.Set(relay.Link{Latency: 100 * time.Millisecond})
	for i, slow := range []string{"LOCK more 300 WAIT 300", "LOCKALL 300 2 more also", "LOCKSCAN 0",
		"FENCE more 1 GET x"} {
		c, name := proxytest.Dial(t, p.Addr), fmt.Sprintf("job:%d", i)
		c.WriteRaw("LOCK " + name + " 30\r\n" + slow + "\r\n")
		awaitUnread(t, c)
		c.Close()
		next.Send("LOCK " + name + " 30 WAIT 300")
		if got := next.Reply(); readToken(got) == 0 {
			t.Errorf("before %s: the lock is not released: %q", slow, got)
		}
	}
}

// Of several tokens only those that can't have been read are released.
func TestOnlyUndeliveredTokensAreReleased(t *testing.T) {
	t.Parallel()
	_, p := proxytest.StartBoth(t)
	c, next := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	// The clock of later versions stands still within a script: it counts.
	busy := "for i = 1, 6e7 do local x = i * i end"
	c.WriteRaw("LOCK read 30\r\n")
	token := proxytest.Token(t, c.Reply())
	c.Write(slices.Concat(resp.AppendCommand(nil, "EVAL", busy, "0"),
		[]byte("LOCK unread 30\r\nLOCK unread:2 30\r\n")))
	time.Sleep(150 * time.Millisecond)
	c.Close()
	next.Lock("unread 300 WAIT 300")
	next.Lock("unread:2 300 WAIT 300")
	next.Expect("LOCK read 300", "$-1\r\n")
	next.Expect(proxytest.Unlock("read", token), ":1\r\n")
}

// awaitUnread returns when the kernel has a reply that the client has not read.
func awaitUnread(t *testing.T, c *proxytest.Conn) {
	t.Helper()
	raw, err := c.Conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "a reply has come", func() bool {
		n := 0
		raw.Read(func(fd uintptr) bool {
			const peek = syscall.MSG_PEEK | syscall.MSG_DONTWAIT
			n, _, _ = syscall.Recvfrom(int(fd), make([]byte, 1), peek)
			return true
		})
		return n > 0
	})
}

// A lock whose token can have been read is its holder's until
// its timeout, however its connection ends.
func TestTokenThatMayHaveBeenReadIsKept(t *testing.T) {
	t.Parallel()
	_, p := proxytest.StartBoth(t)
	next := proxytest.Dial(t, p.Addr)
	kept := func(name string, token int64) {
		t.Helper()
		time.Sleep(100 * time.Millisecond)
		next.Expect("LOCK "+name+" 30", "$-1\r\n")
		if token != 0 {
			next.Expect(proxytest.Unlock(name, token), ":1\r\n")
		}
	}
	long := func() { time.Sleep(200 * time.Millisecond) }
	reset := func(c *proxytest.Conn) {
		c.Conn.(*net.TCPConn).SetLinger(0)
		c.Close()
	}

	c := proxytest.Dial(t, p.Addr)
	token := c.Lock("closed 300")
	c.Close()
	kept("closed", token)

	c = proxytest.Dial(t, p.Addr) // a balancer does that to an idle connection
	token = c.Lock("reset 300")
	long()
	reset(c)
	kept("reset", token)

	c = proxytest.Dial(t, p.Addr) // the kernel has the token, and only it knows whether it was read
	c.Send("LOCK unread 300")
	awaitUnread(t, c)
	long()
	c.Close()
	kept("unread", 0)

	c = proxytest.Dial(t, p.Addr) // like printf | nc
	c.Send("LOCK half 300")
	c.Conn.(*net.TCPConn).CloseWrite()
	token = proxytest.Token(t, c.Reply())
	c.Close()
	kept("half", token)

	c = proxytest.Dial(t, p.Addr) // the reset refuses the reply after the token
	c.Send("LOCK first 300", "BLPOP nothing 0.2")
	token = proxytest.Token(t, c.Reply())
	c.Close()
	time.Sleep(300 * time.Millisecond)
	kept("first", token)

	c = proxytest.Dial(t, p.Addr)
	c.Send("LOCK several 300", "LOCKINFO several")
	token = proxytest.Token(t, c.Reply())
	if c.In.Buffered() == 0 {
		awaitUnread(t, c)
	}
	long()
	reset(c)
	kept("several", token)

	closedAfter(t, p, "CLIENT REPLY OFF", "LOCK quiet 300") // it asked for no reply
	kept("quiet", 0)
}

// Data that a client sent before its token came does not show whether it has read the token.
func TestUndeliveredTokenOfWaiterThatSentMore(t *testing.T) {
	t.Parallel()
	_, p := proxytest.StartBoth(t)
	holder, next := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	for _, closesFirst := range []bool{false, true} {
		for _, more := range []string{"", "PING\r\n", strings.Repeat("PING\r\n", 400)} {
			for _, together := range []bool{true, false} {
				holder.Lock("job 300")
				c := proxytest.Dial(t, p.Addr)
				c.WriteRaw("LOCK job 300 WAIT 300\r\n")
				if together {
					c.WriteRaw(more)
				}
				proxytest.AwaitWaiters(t, p, "job", 1)
				time.Sleep(50 * time.Millisecond) // the client watch has begun
				if !together {
					c.WriteRaw(more)
					time.Sleep(20 * time.Millisecond) // the proxy has it, mostly
				}
				if closesFirst {
					holder.Send("UNLOCK job")
					c.Close()
					holder.Reply()
				} else {
					holder.Expect("UNLOCK job", ":1\r\n")
					c.Close()
				}
				began := time.Now()
				if got := next.Do("LOCK job 300 WAIT 300"); got[0] != ':' {
					t.Errorf("closes first %v, %d bytes more, together %v: %q after %v",
						closesFirst, len(more), together, got, time.Since(began))
					next.Do("UNLOCK job FORCE")
				} else {
					next.Expect("UNLOCK job", ":1\r\n")
				}
			}
		}
	}
}

// A waiter that has sent more than is read while it waits, and closes, leaves the queue at once.
func TestWaiterThatHasSentMuchLeaves(t *testing.T) {
	t.Parallel()
	_, p := proxytest.StartBoth(t)
	holder, next := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	for _, size := range []int{80 << 10, 100 << 10} {
		holder.Lock("job 300")
		c := proxytest.Dial(t, p.Addr)
		c.WriteRaw("LOCK job 300 WAIT 300\r\n")
		proxytest.AwaitWaiters(t, p, "job", 1)
		c.WriteRaw(strings.Repeat("PING\r\n", size/6))
		time.Sleep(100 * time.Millisecond)
		c.Close()
		testwait.Until(t, fmt.Sprintf("after %d bytes more the client has left the queue", size), func() bool {
			return proxytest.Waiters(t, p, "job") == 0
		})
		holder.Expect("UNLOCK job", ":1\r\n")
		next.Lock("job 300")
		next.Expect("UNLOCK job", ":1\r\n")
	}
}
