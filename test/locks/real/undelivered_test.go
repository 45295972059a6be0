package real_test

import (
	"fmt"
	"strings"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
)

// leaves closes a client that p has answered, and returns when p has released what it is going to
// release of the client's.
func leaves(t *testing.T, p *proxytest.Proxy, c *proxytest.Conn) {
	t.Helper()
	left := p.Server.Stats().Clients - 1
	c.Close()
	awaitClients(t, p, left)
}

func awaitClients(t *testing.T, p *proxytest.Proxy, left int) {
	t.Helper()
	testwait.Until(t, "the client is disconnected", func() bool {
		return p.Server.Stats().Clients == left
	})
}

// A client that has closed before the tokens of its locks can have reached it was never their
// holder, whether it asks for one or for a batch.
func TestUndeliveredTokensAreReleased(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	link := testredis.StartLink(t, server.Addr())
	p := proxytest.StartBy(t, testredis.TCP, "redis://"+link.Addr(), nil)
	next := proxytest.Dial(t, p.Addr)
	for _, locks := range []int{1, 20, 1, 20} {
		c := proxytest.SharedClient(t, p.Addr)
		var asked []string
		exist := []string{"EXISTS"}
		for i := range locks {
			exist = append(exist, fmt.Sprintf("job:%d", i))
			asked = append(asked, fmt.Sprintf("LOCK job:%d 300", i))
		}
		c.Send(asked...) // so that Redis knows the scripts
		for i := range locks {
			token := proxytest.Token(t, c.Reply())
			next.Expect(proxytest.Unlock(fmt.Sprintf("job:%d", i), token), ":1\r\n")
		}
		link.HoldReplies()
		c.Send(asked...)
		testwait.Until(t, "Redis has given one at least", func() bool {
			return server.Ask(exist...) != ":0"
		})
		c.Close()
		link.Release()
		for i := range locks {
			next.Lock(fmt.Sprintf("job:%d 300 WAIT 0", i))
			next.Expect(fmt.Sprintf("UNLOCK job:%d", i), ":1\r\n")
		}
	}
}

// So is one whose token and whose end cross. If a busy machine lets more than a moment pass between
// the two, it can be its holder's: then the test tries again.
func TestTokenThatCrossesWithTheEnd(t *testing.T) {
	t.Parallel()
	p := proxytest.StartBy(t, testredis.TCP, testredis.Start(t).URL(), nil)
	next := proxytest.Dial(t, p.Addr)
	released(t, next, func() {
		c := proxytest.Dial(t, p.Addr)
		c.Expect("PING", "+PONG\r\n")
		c.Send("LOCK job 300")
		leaves(t, p, c)
	})
}

// released fails if job is not free three times running behind try, of many times.
func released(t *testing.T, next *proxytest.Conn, try func()) {
	t.Helper()
	running := 0
	for range 50 {
		try()
		got := next.Do("LOCK job 300 WAIT 1")
		next.Do("UNLOCK job FORCE")
		if running++; got[0] != ':' {
			running = 0
		}
		if running == 3 {
			return
		}
	}
	t.Error("the lock is not released")
}

// Of several tokens only those that can't have been read are released.
func TestOnlyUndeliveredTokensAreReleased(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	link := testredis.StartLink(t, server.Addr())
	p := proxytest.StartBy(t, testredis.TCP, "redis://"+link.Addr(), nil)
	c, next := proxytest.SharedClient(t, p.Addr), proxytest.Dial(t, p.Addr)
	c.WriteRaw("LOCK read 300\r\n")
	token := proxytest.Token(t, c.Reply())
	link.HoldReplies()
	c.WriteRaw("LOCK unread 300\r\nLOCK unread:2 300\r\n")
	testwait.Until(t, "Redis has given one at least", func() bool {
		return server.Ask("EXISTS", "unread", "unread:2") != ":0"
	})
	c.Close()
	link.Release()
	next.Lock("unread 300 WAIT 0")
	next.Lock("unread:2 300 WAIT 0")
	next.Expect("LOCK read 300", "$-1\r\n")
	next.Expect(proxytest.Unlock("read", token), ":1\r\n")
}

// A lock whose token can have been read is its holder's until its timeout, however its connection
// ends. What becomes of it after a reset depends on time: that is tested in virtual time.
func TestTokenThatMayHaveBeenReadIsKept(t *testing.T) {
	t.Parallel()
	p := proxytest.StartBy(t, testredis.TCP, testredis.Start(t).URL(), nil)
	next := proxytest.Dial(t, p.Addr)
	kept := func(c *proxytest.Conn, name string, token int64, then ...func()) {
		t.Helper()
		c.Close()
		for _, do := range then {
			do()
		}
		awaitClients(t, p, 1) // next
		next.Expect("LOCK "+name+" 300", "$-1\r\n")
		if token != 0 {
			next.Expect(proxytest.Unlock(name, token), ":1\r\n")
		}
	}

	c := proxytest.Dial(t, p.Addr)
	kept(c, "closed", c.Lock("closed 300"))

	c = proxytest.Dial(t, p.Addr) // like printf | nc
	c.Send("LOCK half 300")
	c.CloseWrite()
	kept(c, "half", proxytest.Token(t, c.Reply()))

	c = proxytest.Dial(t, p.Addr) // the reset refuses the reply after the token
	c.Send("LOCK first 300", "BLPOP list 0")
	kept(c, "first", proxytest.Token(t, c.Reply()), func() { next.Expect("RPUSH list x", ":1\r\n") })

	c = proxytest.Dial(t, p.Addr) // it asked for no reply
	c.Expect("PING", "+PONG\r\n")
	c.Send("CLIENT REPLY OFF", "LOCK quiet 300")
	kept(c, "quiet", 0)
}

// Data that a client sent before its token came does not show whether it has read the token.
func TestUndeliveredTokenOfWaiterThatSentMore(t *testing.T) {
	t.Parallel()
	p := proxytest.StartBy(t, testredis.TCP, testredis.Start(t).URL(), nil)
	holder, next := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	many := strings.Repeat("PING\r\n", 400)
	for _, closesFirst := range []bool{false, true} {
		for _, more := range [][2]string{ // with the command, and later
			{"", ""}, {"PING\r\n", ""}, {"", "PING\r\n"}, {many, ""}, {"", many},
		} {
			released(t, next, func() {
				holder.Lock("job 300")
				c := proxytest.Dial(t, p.Addr)
				c.WriteRaw("LOCK job 300 WAIT 300\r\n" + more[0])
				proxytest.AwaitWaiters(t, p, "job", 1)
				c.WriteRaw(more[1])
				proxytest.AwaitRead(t, c) // by its session, unless both came together
				if closesFirst {
					holder.Send("UNLOCK job")
					c.Close()
					awaitClients(t, p, 2) // holder and next
					holder.WantReply(":1\r\n")
				} else {
					holder.Expect("UNLOCK job", ":1\r\n")
					c.Close()
					awaitClients(t, p, 2)
				}
			})
		}
	}
}

// A waiter that has sent more than is read while it waits, and closes, leaves the queue at once.
func TestWaiterThatHasSentMuchLeaves(t *testing.T) {
	t.Parallel()
	p := proxytest.StartBy(t, testredis.TCP, testredis.Start(t).URL(), nil)
	holder, next := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	for _, size := range []int{80 << 10, 100 << 10} {
		holder.Lock("job 300")
		c := proxytest.Dial(t, p.Addr)
		c.WriteRaw("LOCK job 300 WAIT 300\r\n")
		proxytest.AwaitWaiters(t, p, "job", 1)
		c.WriteRaw(strings.Repeat("PING\r\n", size/6))
		testwait.Blocked(t, "proxy.(*waker).await") // it reads no more
		c.Close()
		proxytest.AwaitWaiters(t, p, "job", 0)
		holder.Expect("UNLOCK job", ":1\r\n")
		next.Lock("job 300")
		next.Expect("UNLOCK job", ":1\r\n")
	}
}
