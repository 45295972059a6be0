package locks_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/proxytest"
)

// A release by FORCE names a waiter that has meanwhile taken the expired lock by itself: the waiter
// does not get what FORCE gives it.
func TestAttackForceAfterExpiry(t *testing.T) {
	t.Parallel()
	_, relay, p := attackBoth(t)
	holder, next, other := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr),
		proxytest.Dial(t, p.Addr)
	holder.Lock("job 1")
	next.Send("LOCK job 30 WAIT 5")
	proxytest.AwaitWaiters(t, p, "job", 1)
	rule, release := relay.hold(t, true, "force ")
	other.Send("UNLOCK job FORCE")
	<-rule.met
	token := proxytest.Token(t, next.Reply())
	release()
	if got := other.Reply(); got != ":1\r\n" {
		t.Errorf("FORCE: %q", got)
	}
	next.Expect(proxytest.Unlock("job", token), ":0\r\n") // forced
	other.Lock("job 30 WAIT 1")
}

// A full Redis takes no new lock; existing ones can be renewed, released and handed over.
func TestAttackFullRedis(t *testing.T) {
	t.Parallel()
	server, p := proxytest.StartBoth(t)
	direct := proxytest.GoRedis(t, server.Addr())
	holder, next, other := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr),
		proxytest.Dial(t, p.Addr)
	token := holder.Lock("kept 1 SESSION")
	shared := holder.Lock("doc 30 SHARED")
	holder.Lock("job 30")
	next.Send("LOCK job 30 WAIT 5")
	proxytest.AwaitWaiters(t, p, "job", 1)
	direct.ConfigSet(proxytest.Ctx, "maxmemory", "1")
	defer direct.ConfigSet(proxytest.Ctx, "maxmemory", "0")
	other.Expect("LOCK other 30", "-OOM …")
	holder.Expect(fmt.Sprintf("FENCE doc %d SET x 1", shared), "-OOM …")
	time.Sleep(1500 * time.Millisecond) // the waiter polls meanwhile
	holder.Expect("UNLOCK job", ":1\r\n")
	proxytest.Token(t, next.Reply())
	next.Expect("UNLOCK job", ":1\r\n")
	holder.Expect(proxytest.Unlock("kept", token), ":1\r\n")
}

// On a full Redis, too, waiters have what UNLOCKALL releases, and what is released for the waiters of
// another proxy.
func TestFullRedisHandsOver(t *testing.T) {
	t.Parallel()
	server, p := proxytest.StartBoth(t)
	q := proxytest.Start(t, server.URL(), nil)
	holder, all := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	token := holder.Lock("a 600")
	both := proxytest.Token(t, all.Do("LOCKALL 600 2 b c"))
	pair := proxytest.Token(t, all.Do("LOCKALL 600 2 d e"))
	waits := map[string]*proxytest.Proxy{"LOCK a 600 WAIT 0": q, "LOCK b 600 WAIT 0": p,
		"LOCK c 600 SHARED WAIT 0": q, "LOCKALL 600 2 d e WAIT 0": p}
	clients := map[string]*proxytest.Conn{}
	for command, at := range waits {
		clients[command] = proxytest.Dial(t, at.Addr)
		clients[command].Send(command)
	}
	for _, key := range []string{"a", "c"} {
		proxytest.AwaitWaiters(t, q, key, 1)
	}
	for _, key := range []string{"b", "d", "e"} {
		proxytest.AwaitWaiters(t, p, key, 1)
	}
	server.Ask("CONFIG", "SET", "maxmemory", "1")
	holder.Expect("LOCK other 600", "-OOM …")
	holder.Expect(proxytest.Unlock("a", token), ":1\r\n")
	holder.Expect(fmt.Sprintf("UNLOCKALL %d 2 b c", both), ":2\r\n")
	holder.Expect(fmt.Sprintf("UNLOCKALL %d 2 d e", pair), ":2\r\n")
	for command, c := range clients {
		if got := c.Reply(); got[0] != ':' {
			t.Errorf("%s: %q", command, got)
		}
	}
}

// After a SELECT that fails within EXEC, the proxy still knows the client's database.
func TestAttackFailedSelectInTransaction(t *testing.T) {
	t.Parallel()
	_, p := proxytest.StartBoth(t)
	holder, next, first := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr),
		proxytest.Dial(t, p.Addr)
	token := first.Lock("job 30")
	next.Send("LOCK job 30 WAIT 0.5")
	proxytest.AwaitWaiters(t, p, "job", 1)
	holder.Expect("SELECT 3", "+OK\r\n")
	holder.Lock("job 30")
	holder.Expect("MULTI", "+OK\r\n")
	holder.Expect("SELECT x", "+QUEUED\r\n")
	holder.Do("EXEC")
	holder.Expect("UNLOCK job", ":1\r\n")
	if got := next.Reply(); got != "$-1\r\n" {
		t.Errorf("two holders: %q", got)
	}
	first.Expect(proxytest.Unlock("job", token), ":1\r\n")
}

// During the grace period a lock's key can be missing, or of another type.
func TestAttackOtherTypeInGracePeriod(t *testing.T) {
	t.Parallel()
	server, p := proxytest.StartBoth(t)
	direct := proxytest.GoRedis(t, server.Addr())
	c := proxytest.Dial(t, p.Addr)
	direct.Set(proxytest.Ctx, "job", "1000000000", 0)
	token := c.Lock("job 30 OWNER me")
	for _, command := range []string{fmt.Sprintf("RELOCK job %d 30", token),
		"LOCK job 60 OWNER me"} {
		// at once: the proxy checks the key
		direct.TxPipelined(proxytest.Ctx, func(tx redis.Pipeliner) error {
			tx.Del(proxytest.Ctx, "job")
			tx.RPush(proxytest.Ctx, "job", "x")
			return nil
		})
		c.Expect(command, "-WRONGTYPE …")
		if kind := direct.Type(proxytest.Ctx, "job").Val(); kind != "list" {
			t.Fatalf("%s made a %s of it", command, kind)
		}
	}
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
		token := c.Lock(denied + " 30")
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

// Odd owners come back as they were sent.
func TestAttackOwnerNames(t *testing.T) {
	t.Parallel()
	_, p := proxytest.StartBoth(t)
	c := proxytest.GoRedis(t, p.Addr)
	for i, owner := range []string{"\n", " ", "\x00", "a\nb\n", "%s", "v1 1 2 3", "\r\n",
		strings.Repeat("x", 100000), "\xff\xfe", "-"} {
		key := fmt.Sprint("job", i)
		token, err := c.Do(proxytest.Ctx, "LOCK", key, 30, "OWNER", owner).Int64()
		if err != nil {
			t.Fatal(err)
		}
		again, err := c.Do(proxytest.Ctx, "LOCK", key, 30, "OWNER", owner).Int64()
		if err != nil || again != token {
			t.Errorf("%q: %d, %v; want %d", owner, again, err, token)
		}
		if got := c.Do(proxytest.Ctx, "LOCK", key, 30, "OWNER", owner+"\n").Err(); got == nil {
			t.Errorf("%q with a newline is another owner", owner)
		}
		info, _ := c.Do(proxytest.Ctx, "LOCKINFO", key).Result()
		if got := info.(map[any]any)["owner"]; got != owner {
			t.Errorf("got %q, want %q", got, owner)
		}
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
	a.Lock("job 30")
	b.Expect("SELECT 4", "+OK\r\n")
	b.Send("LOCK job 30 WAIT 5")
	time.Sleep(50 * time.Millisecond)
	start := time.Now()
	a.Expect("UNLOCK job", ":1\r\n")
	if got := b.Reply(); got[0] != ':' ||
		time.Since(start) > 100*time.Millisecond+proxytest.Late() {
		t.Errorf("%q after %v: it was not in the same queue", got, time.Since(start))
	}
}
