package real_test

import (
	"fmt"
	"strings"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
)

// A full Redis takes no new lock; existing ones can be renewed, released and handed over.
func TestAttackFullRedis(t *testing.T) {
	t.Parallel()
	server, p := proxytest.StartBoth(t)
	direct := proxytest.GoRedis(t, server.Addr())
	holder, next, other := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr),
		proxytest.Dial(t, p.Addr)
	token := holder.Lock("kept 300 SESSION")
	shared := holder.Lock("doc 300 SHARED")
	holder.Lock("job 300")
	next.Send("LOCK job 300 WAIT 600")
	proxytest.AwaitWaiters(t, p, "job", 1)
	direct.ConfigSet(proxytest.Ctx, "maxmemory", "1")
	defer direct.ConfigSet(proxytest.Ctx, "maxmemory", "0")
	other.Expect("LOCK other 300", "-OOM …")
	holder.Expect(fmt.Sprintf("FENCE doc %d SET x 1", shared), "-OOM …")
	holder.Expect(fmt.Sprintf("RELOCK kept %d 300", token), ":1\r\n")
	before, _ := scriptCalls(t, direct)
	testwait.Until(t, "the waiter polls", func() bool {
		after, _ := scriptCalls(t, direct)
		return after > before
	})
	holder.Expect("UNLOCK job", ":1\r\n")
	proxytest.Token(t, next.Reply())
	next.Expect("UNLOCK job", ":1\r\n")
	holder.Expect(proxytest.Unlock("kept", token), ":1\r\n")
}

// On a full Redis, too, waiters have what UNLOCKALL releases, and what is released for the waiters of
// another proxy. If a busy machine lets the reservation for a waiter expire, Redis refuses it the
// lock as a new one: then the test tries again.
func TestFullRedisHandsOver(t *testing.T) {
	t.Parallel()
	server, p := proxytest.StartBoth(t)
	q := proxytest.Start(t, server.URL(), nil)
	replies := map[string]string{}
	for round := range 10 {
		server.Ask("CONFIG", "SET", "maxmemory", "0")
		replies = handedOver(t, server, p, q, fmt.Sprint(round))
		refused := false
		for command, got := range replies {
			refused = refused || strings.HasPrefix(got, "-OOM ")
			if got[0] != ':' && !strings.HasPrefix(got, "-OOM ") {
				t.Errorf("%s: %q", command, got)
			}
		}
		if !refused {
			return
		}
	}
	t.Errorf("each time Redis was full for a waiter, the last time %q", replies)
}

// handedOver has locks released on a full Redis, and returns the replies to their waiters.
func handedOver(
	t *testing.T, server *testredis.Server, p, q *proxytest.Proxy, round string,
) map[string]string {
	t.Helper()
	holder, all := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	a, b, c, d, e := "a"+round, "b"+round, "c"+round, "d"+round, "e"+round
	token := holder.Lock(a + " 600")
	both := proxytest.Token(t, all.Do(fmt.Sprintf("LOCKALL 600 2 %s %s", b, c)))
	pair := proxytest.Token(t, all.Do(fmt.Sprintf("LOCKALL 600 2 %s %s", d, e)))
	clients := map[string]*proxytest.Conn{}
	for command, at := range map[string]*proxytest.Proxy{
		"LOCK " + a + " 600 WAIT 0": q, "LOCK " + b + " 600 WAIT 0": p,
		"LOCK " + c + " 600 SHARED WAIT 0":              q,
		fmt.Sprintf("LOCKALL 600 2 %s %s WAIT 0", d, e): p,
	} {
		clients[command] = proxytest.Dial(t, at.Addr)
		clients[command].Send(command)
	}
	for _, key := range []string{a, c} {
		proxytest.AwaitWaiters(t, q, key, 1)
	}
	for _, key := range []string{b, d, e} {
		proxytest.AwaitWaiters(t, p, key, 1)
	}
	server.Ask("CONFIG", "SET", "maxmemory", "1")
	holder.Expect("LOCK other 600", "-OOM …")
	holder.Expect(proxytest.Unlock(a, token), ":1\r\n")
	holder.Expect(fmt.Sprintf("UNLOCKALL %d 2 %s %s", both, b, c), ":2\r\n")
	holder.Expect(fmt.Sprintf("UNLOCKALL %d 2 %s %s", pair, d, e), ":2\r\n")
	replies := map[string]string{}
	for command, c := range clients {
		replies[command] = c.Reply()
	}
	return replies
}

// After a SELECT that fails within EXEC, the proxy still knows the client's database.
func TestAttackFailedSelectInTransaction(t *testing.T) {
	t.Parallel()
	_, p := proxytest.StartBoth(t)
	holder, next, first := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr),
		proxytest.Dial(t, p.Addr)
	token := first.Lock("job 300")
	next.Send("LOCK job 300 WAIT 600")
	proxytest.AwaitWaiters(t, p, "job", 1)
	holder.Expect("SELECT 3", "+OK\r\n")
	holder.Lock("job 300")
	holder.Expect("MULTI", "+OK\r\n")
	holder.Expect("SELECT x", "+QUEUED\r\n")
	holder.Do("EXEC")
	holder.Expect("UNLOCK job", ":1\r\n")
	first.Expect("LOCK job 300", "$-1\r\n")
	first.Expect(proxytest.Unlock("job", token), ":1\r\n")
	proxytest.Token(t, next.Reply())
}

// A refused FENCE leaves no transaction behind, whatever its user may not do.
func TestAttackFenceWithoutDiscard(t *testing.T) {
	t.Parallel()
	server, p := proxytest.StartBoth(t)
	direct := proxytest.GoRedis(t, server.Addr())
	for _, denied := range []string{"exec", "multi", "watch", "discard"} {
		direct.Do(proxytest.Ctx, "ACL", "SETUSER", "u", "reset", "on", ">p", "~*", "+@all",
			"-"+denied)
		c := proxytest.Dial(t, p.Addr)
		c.Expect("AUTH u p", "+OK\r\n")
		token := c.Lock(denied + " 300")
		c.Expect(fmt.Sprintf("FENCE %s %d NOSUCHCOMMAND", denied, token), "-…")
		c.Expect(fmt.Sprintf("FENCE %s %d SET x", denied, token), "-…")
		c.Do(fmt.Sprintf("FENCE %s %d SET x y", denied, token))
		if denied != "discard" && direct.Exists(proxytest.Ctx, "x").Val() != 0 {
			t.Fatalf("without %s it ran the command without the check", denied)
		}
		c.Expect("PING", "+PONG\r\n")
		c.Close()
	}
}

// A SELECT that fails within MULTI leaves the database unchanged, for lock commands too.
func TestAttackFailedSelectInMulti(t *testing.T) {
	t.Parallel()
	_, p := proxytest.StartBoth(t)
	a, b := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	a.Send("SELECT 3", "MULTI", "SELECT 99", "SELECT 4", "SELECT 77", "EXEC")
	for _, want := range []string{"+OK", "+OK", "+QUEUED", "+QUEUED", "+QUEUED", "*3\r\n-ERR"} {
		if got := a.Reply(); !strings.HasPrefix(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	a.Lock("job 300")
	b.Expect("SELECT 4", "+OK\r\n")
	b.Send("LOCK job 300 WAIT 600")
	testwait.Until(t, "it waits", func() bool {
		return strings.Contains(a.Do("LOCKINFO job"), "\r\nwaiters\r\n:1\r\n")
	})
	// In the same queue, the lock is the waiter's before the next command runs.
	a.Send("UNLOCK job", "LOCK job 300")
	for _, want := range []string{":1\r\n", "$-1\r\n"} {
		a.WantReply(want)
	}
	proxytest.Token(t, b.Reply())
}
