package locks_test

import (
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/proxytest"
	"lockproxy/internal/resp"
	"lockproxy/internal/testredis"
	"lockproxy/proxy"
)

// A renewal that runs between an UNLOCK and its reply finds the lock gone, which is not a loss.
func TestAttackRenewalAfterUnlock(t *testing.T) {
	_, relay, p := attackBoth(t)
	for _, how := range []string{"connection", "token", "force"} {
		c := proxytest.Dial(t, p.Addr)
		token := c.Lock("job 0.3 SESSION")
		_, release := relay.hold(t, false, how+" ")
		switch how {
		case "connection":
			c.Send("UNLOCK job")
		case "token":
			c.Send(proxytest.Unlock("job", token))
		case "force":
			c.Send("UNLOCK job FORCE")
		}
		time.AfterFunc(250*time.Millisecond, release)
		if got, err := c.TryReply(2 * time.Second); got != ":1\r\n" {
			t.Errorf("by %s: %q, %v", how, got, err)
		}
		c.Expect("PING", "+PONG\r\n")
	}
}

// An UNLOCK that frees nothing leaves the session lock renewed.
func TestAttackFailedUnlockKeepsRenewing(t *testing.T) {
	_, p := proxytest.StartBoth(t)
	c, other := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	token := c.Lock("job 0.3 SESSION")
	c.Expect(proxytest.Unlock("job", token+1), ":0\r\n")
	time.Sleep(500 * time.Millisecond)
	other.Expect("LOCK job 30", "$-1\r\n")
	c.Expect(proxytest.Unlock("job", token), ":1\r\n")
}

// RELOCK gives a session lock a new timeout, with which it is renewed.
func TestAttackRelockOfSessionLock(t *testing.T) {
	server, p := proxytest.StartBoth(t)
	c, other := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	token := c.Lock("short 30 SESSION")
	c.Expect(fmt.Sprintf("RELOCK short %d 0.4", token), ":1\r\n")
	long := c.Lock("long 0.3 SESSION")
	c.Expect(fmt.Sprintf("RELOCK long %d 30", long), ":1\r\n")
	time.Sleep(time.Second)
	other.Expect("LOCK short 30", "$-1\r\n")
	ttl := proxytest.GoRedis(t, server.Addr()).PTTL(proxytest.Ctx, "long").Val()
	if ttl < 20*time.Second {
		t.Errorf("the renewal has shortened the lock to %v", ttl)
	}
	c.Expect(proxytest.Unlock("short", token), ":1\r\n")
	c.Expect(proxytest.Unlock("long", long), ":1\r\n")
}

// A waiter's time ends even while the release that can be for
// it hangs; the release then finds that it has left.
func TestAttackHangingRelease(t *testing.T) {
	// What hangs is one connection, so it must be the releaser's alone.
	_, relay, p := attackWith(t, func(cfg *proxy.Config) { cfg.Dedicated = true })
	holder, next, other := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr),
		proxytest.Dial(t, p.Addr)
	other.Do("PING")
	holder.Lock("job 30")
	next.Send("LOCK job 30 WAIT 0.3")
	proxytest.AwaitWaiters(t, p, "job", 1)
	rule, release := relay.hold(t, true, "connection ")
	holder.Send("UNLOCK job")
	<-rule.met
	if got, err := next.TryReply(3 * time.Second); got != "$-1\r\n" {
		t.Errorf("%q, %v", got, err)
	}
	release()
	if got := holder.Reply(); got != ":1\r\n" {
		t.Errorf("UNLOCK: %q", got)
	}
	other.Lock("job 30 WAIT 1")
}

// The reply to a release is lost, and with it whether the
// waiter was given the lock; then its time is over.
func TestAttackLostHandOver(t *testing.T) {
	_, relay, p := attackBoth(t)
	for _, hangUp := range []bool{false, true} {
		holder, next, other := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr),
			proxytest.Dial(t, p.Addr)
		holder.Lock("job 30")
		other.Do("PING")
		next.Send("LOCK job 30 WAIT 0.4")
		proxytest.AwaitWaiters(t, p, "job", 1)
		rule := &attackRule{text: "connection ", cut: true, met: make(chan struct{}),
			over: make(chan struct{})}
		time.Sleep(300 * time.Millisecond)
		relay.add(rule)
		holder.Send("UNLOCK job")
		<-rule.met
		relay.mu.Lock()
		relay.rules = nil
		relay.mu.Unlock()
		if hangUp {
			next.Close()
		} else if got := next.Reply(); got[0] == ':' {
			next.Expect("UNLOCK job", ":1\r\n")
		}
		if got := other.Do("LOCK job 30 WAIT 1"); got[0] != ':' {
			t.Errorf("hang-up %v: the lock is held by no client: %q", hangUp, got)
		}
		other.Expect("UNLOCK job", ":1\r\n")
	}
}

// The reply to a LOCK is lost with the upstream connection: no client will ever know the token. An
// earlier lock of this connection stays.
func TestAttackLostToken(t *testing.T) {
	_, relay, p := attackBoth(t)
	for _, command := range []string{"LOCK job 3600", "LOCK job 3600 SESSION",
		"LOCK job 3600 WAIT 5"} {
		c, other := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
		other.Do("PING")
		token := c.Lock("mine 30")
		for _, key := range []string{"job", "mine"} {
			if key == "mine" {
				c = proxytest.Dial(t, p.Addr)
				token = c.Lock("mine 30 WAIT 1")
			}
			rule := &attackRule{text: "3600000 ms", cut: true, met: make(chan struct{}),
				over: make(chan struct{})}
			relay.add(rule)
			c.Expect(strings.Replace(command, "job", key, 1), "-UPSTREAM …")
			relay.mu.Lock()
			relay.rules = nil
			relay.mu.Unlock()
			if key == "job" {
				other.Lock("job 30 WAIT 1")
				other.Expect("UNLOCK job", ":1\r\n")
				other.Expect(proxytest.Unlock("mine", token), ":1\r\n")
			} else {
				time.Sleep(50 * time.Millisecond)
				other.Expect(proxytest.Unlock("mine", token), ":1\r\n")
			}
		}
	}
}

// An owner whose connection breaks before it has read that
// its lock was renewed still holds it: it knows the token.
func TestAttackUnreadRenewal(t *testing.T) {
	server, p := proxytest.StartBoth(t)
	direct := proxytest.GoRedis(t, server.Addr())
	for i, command := range []string{"LOCK job%d 60 OWNER me", "LOCK job%d 60 WAIT 5 OWNER me"} {
		key := fmt.Sprint("job", i)
		c, again, other := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr),
			proxytest.Dial(t, p.Addr)
		token := c.Lock(key + " 30 OWNER me")
		c.Send(fmt.Sprintf(command, i))
		proxytest.Eventually(t, time.Second, "the lock is renewed", func() bool {
			return direct.PTTL(proxytest.Ctx, key).Val() > 30*time.Second
		})
		time.Sleep(5 * time.Millisecond)
		c.Close() // with the reply unread, which makes it a reset
		other.Expect("LOCK "+key+" 30 WAIT 0.3", "$-1\r\n")
		if got := again.Lock(key + " 30 OWNER me"); got != token {
			t.Errorf("%s: got %d, want %d", command, got, token)
		}
	}
}

// A release by FORCE names a waiter that has meanwhile taken the expired lock by itself: the waiter
// does not get what FORCE gives it.
func TestAttackForceAfterExpiry(t *testing.T) {
	_, relay, p := attackBoth(t)
	holder, next, other := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr),
		proxytest.Dial(t, p.Addr)
	holder.Lock("job 0.4")
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

// A connection with many session locks ends in bounded time even if the upstream hangs.
func TestAttackManySessionLocksAndAHungUpstream(t *testing.T) {
	server := testredis.Start(t)
	p := proxytest.Start(t, server.URL(), nil)
	c := proxytest.Dial(t, p.Addr)
	for i := range 20 {
		c.Lock(fmt.Sprintf("job%d 3600 SESSION", i))
	}
	server.Pause()
	defer server.Resume()
	c.Close()
	start := time.Now()
	p.Server.Close()
	if took := time.Since(start); took > 8*time.Second {
		t.Errorf("closing took %v", took)
	}
}

// A full Redis takes no new lock; existing ones can be renewed, released and handed over.
func TestAttackFullRedis(t *testing.T) {
	server, p := proxytest.StartBoth(t)
	direct := proxytest.GoRedis(t, server.Addr())
	holder, next, other := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr),
		proxytest.Dial(t, p.Addr)
	token := holder.Lock("kept 0.4 SESSION")
	holder.Lock("job 30")
	next.Send("LOCK job 30 WAIT 5")
	proxytest.AwaitWaiters(t, p, "job", 1)
	direct.ConfigSet(proxytest.Ctx, "maxmemory", "1")
	defer direct.ConfigSet(proxytest.Ctx, "maxmemory", "0")
	other.Expect("LOCK other 30", "-OOM …")
	holder.Expect("UNLOCK job", ":1\r\n")
	proxytest.Token(t, next.Reply())
	next.Expect("UNLOCK job", ":1\r\n")
	time.Sleep(700 * time.Millisecond)
	holder.Expect(proxytest.Unlock("kept", token), ":1\r\n")
}

// After a SELECT that fails within EXEC, the proxy still knows the client's database.
func TestAttackFailedSelectInTransaction(t *testing.T) {
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

// Repeated takeovers of locks don't multiply the checks in the grace period.
func TestAttackTakeoverStorm(t *testing.T) {
	t.Parallel()
	server, p := proxytest.StartBoth(t)
	direct := proxytest.GoRedis(t, server.Addr())
	c := proxytest.Dial(t, p.Addr)
	direct.Set(proxytest.Ctx, "job", "1000000000", 0)
	const n = 500
	for range n {
		c.Lock("job 30")
		c.Expect("UNLOCK job", ":1\r\n")
	}
	time.Sleep(2200 * time.Millisecond)
	if scripts, _ := scriptCalls(t, direct); scripts > 3*n {
		t.Errorf("%d scripts for %d locks", scripts, n)
	}
}

// Odd owners come back as they were sent.
func TestAttackOwnerNames(t *testing.T) {
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

// A session lock with a very short timeout is either kept or
// reported lost, and doesn't keep the upstream busy.
func TestAttackShortSessionLocks(t *testing.T) {
	server, p := proxytest.StartBoth(t)
	direct := proxytest.GoRedis(t, server.Addr())
	for i := range 50 {
		c := proxytest.Dial(t, p.Addr)
		c.Do("HELLO 3")
		c.Do(fmt.Sprintf("LOCK job%d 0.001 SESSION", i))
	}
	before, _ := scriptCalls(t, direct)
	time.Sleep(time.Second)
	after, _ := scriptCalls(t, direct)
	t.Logf("%d scripts/s", after-before)
	if after-before > 5000 {
		t.Errorf("%d scripts/s for 50 locks", after-before)
	}
}

// Clients hang up and upstream connections break at any point. No two hold the lock at once, and it
// is never unheld for long.
func TestAttackChaos(t *testing.T) {
	t.Parallel()
	_, relay, p := attackBoth(t)
	proxies := []*proxytest.Proxy{p, proxytest.Start(t, "redis://"+relay.addr, nil)}
	end := time.Now().Add(4 * time.Second)
	type span struct {
		token    int64
		from, to time.Time
	}
	var (
		mu    sync.Mutex
		spans []span
		wg    sync.WaitGroup
	)
	wg.Go(func() {
		for time.Now().Before(end) {
			time.Sleep(25 * time.Millisecond)
			relay.cutAny()
		}
	})
	for i := range 12 {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 1))
			var c *proxytest.Conn
			for time.Now().Before(end) {
				if c == nil {
					nc, err := net.Dial("tcp", proxies[i%2].Addr)
					if err != nil {
						t.Error(err)
						return
					}
					c = proxytest.Dialed(t, nc)
				}
				wait := []string{"0.005", "0.05", "0", "10"}[random.IntN(4)]
				c.Write(resp.AppendCommand(nil, "LOCK", "job", "60", "SESSION", "WAIT", wait))
				if random.IntN(10) == 0 {
					time.Sleep(rand.N(20 * time.Millisecond))
					c.Close()
					c = nil
					continue
				}
				got, err := c.TryReply(10 * time.Second)
				s := span{from: time.Now()}
				if err == nil && got[0] == ':' {
					s.token = proxytest.Token(t, got)
					time.Sleep(rand.N(2 * time.Millisecond))
					s.to = time.Now()
					how := []string{"", "FORCE"}[random.IntN(2)]
					c.Write(resp.AppendCommand(nil, strings.Fields("UNLOCK job "+how)...))
					if got, err = c.TryReply(10 * time.Second); got == ":1\r\n" && how == "" {
						mu.Lock()
						spans = append(spans, s)
						mu.Unlock()
					}
				}
				if err != nil || got[0] == '-' {
					if proxytest.IsTimeout(err) {
						t.Errorf("client %d has waited in vain", i)
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
	if len(spans) < 50 || longest > 1500*time.Millisecond {
		t.Errorf("%d locks, the longest time without one %v", len(spans), longest)
	}
}

// A SELECT that fails within MULTI leaves the database unchanged, for lock commands too.
func TestAttackFailedSelectInMulti(t *testing.T) {
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
	if got := b.Reply(); got[0] != ':' || time.Since(start) > 100*time.Millisecond {
		t.Errorf("%q after %v: it was not in the same queue", got, time.Since(start))
	}
}

// A waiter polls while a release gives it the lock, and the poll takes so long that the granted
// lock has expired when it runs: the waiter is told the token of the lock that it holds.
func TestAttackPollAfterExpiredGrant(t *testing.T) {
	_, relay, p := attackWith(t, func(cfg *proxy.Config) { cfg.Dedicated = true })
	holder, next := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	holder.Lock("job 30")
	next.Send("LOCK job 0.5 WAIT 10")
	proxytest.AwaitWaiters(t, p, "job", 1)
	rule, release := relay.hold(t, true, " first ")
	<-rule.met
	holder.Expect("UNLOCK job", ":1\r\n")
	time.Sleep(600 * time.Millisecond)
	release()
	token := proxytest.Token(t, next.Reply())
	next.Expect(proxytest.Unlock("job", token), ":1\r\n")
}
