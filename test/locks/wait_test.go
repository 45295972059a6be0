package locks_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/proxytest"
	"lockproxy/internal/testredis"
	"lockproxy/lockcmd"
)

// scriptCalls is how many scripts the upstream has run, and how many commands in all.
func scriptCalls(t testing.TB, direct *redis.Client) (scripts, all int) {
	for line := range strings.SplitSeq(direct.Info(proxytest.Ctx, "commandstats").Val(), "\r\n") {
		name, rest, ok := strings.Cut(line, ":calls=")
		if !ok {
			continue
		}
		digits, _, _ := strings.Cut(rest, ",")
		n, _ := strconv.Atoi(digits)
		switch name {
		case "cmdstat_evalsha", "cmdstat_eval":
			scripts += n
		case "cmdstat_info", "cmdstat_config|resetstat":
			continue
		}
		all += n
	}
	return scripts, all
}

func TestWaitersAreServedInOrder(t *testing.T) {
	_, p := proxytest.StartBoth(t)
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
}

func TestWaitEnds(t *testing.T) {
	server, p := proxytest.StartBoth(t)
	a, b := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	a.Lock("job 30")
	start := time.Now()
	b.Expect("LOCK job 30 WAIT 0.1", "$-1\r\n")
	if took := time.Since(start); took < 100*time.Millisecond || took > 200*time.Millisecond {
		t.Errorf("a wait of 0.1 s took %v", took)
	}
	b.Expect("HELLO 3", "%7…")
	b.Expect("LOCK job 30 WAIT 0.01", "_\r\n")

	// The holder's timeout ends the wait, and a DEL, which sends no notification, within 250 ms.
	a.Expect("UNLOCK job", ":1\r\n")
	a.Lock("job 0.15")
	start = time.Now()
	b.Lock("job 30 WAIT 5")
	if took := time.Since(start); took < 140*time.Millisecond || took > 190*time.Millisecond {
		t.Errorf("a lock of 0.15 s was given to the next after %v", took)
	}
	a.Send("LOCK job 30 WAIT 5")
	proxytest.AwaitWaiters(t, p, "job", 1)
	start = time.Now()
	proxytest.GoRedis(t, server.Addr()).Del(proxytest.Ctx, "job")
	if got := a.Reply(); got[0] != ':' || time.Since(start) > 250*time.Millisecond {
		t.Errorf("%q %v after DEL", got, time.Since(start))
	}

	for command, want := range map[string]string{
		"LOCK k 1 WAIT": "-ERR syntax error\r\n",
		"LOCK k 1 WAIT x": "-ERR timeout is not a float or out of range: \"x\" " +
			"(seconds, at most 8589934592)\r\n",
		"LOCK k 1 WAIT -1":             "-ERR timeout is negative\r\n",
		"LOCK k 1 WAIT 1 WAIT 1":       "-ERR syntax error\r\n",
		"LOCK k 1 SESSION SESSION":     "-ERR syntax error\r\n",
		"LOCK k 1 OWNER":               "-ERR syntax error\r\n",
		"LOCK k 1 NX":                  "-ERR syntax error\r\n",
		"LOCK k x WAIT 1":              outOfRange("x"),
		"LOCK k2 1 wait 1 session":     ":…",
		"RELOCK k":                     "-ERR wrong number of arguments for 'relock' command\r\n",
		"RELOCK k x 1":                 "-ERR value is not an integer or out of range\r\n",
		"RELOCK k 1 0":                 outOfRange("0"),
		"LOCKINFO":                     "-ERR wrong number of arguments for 'lockinfo' command\r\n",
		"LOCKSCAN x":                   "-ERR invalid cursor\r\n",
		"LOCKSCAN 0 COUNT x":           "-ERR value is not an integer or out of range\r\n",
		"LOCKSCAN 0 COUNT 0":           "-ERR syntax error\r\n",
		"LOCKSCAN 0 MATCH":             "-ERR syntax error\r\n",
		"FENCE k 1":                    "-ERR wrong number of arguments for 'fence' command\r\n",
		"FENCE k x GET a":              "-ERR value is not an integer or out of range\r\n",
		"FENCE k 1 MULTI":              "-ERR 'multi' can't be fenced…",
		"FENCE k 1 LOCK a 1":           "-ERR 'lock' can't be fenced…",
		"FENCE k 1 BLPOP a 1":          "-ERR 'blpop' can't be fenced: it blocks…",
		"LOCK job 1 OWNER a WAIT 0.01": "_\r\n",
	} {
		b.Expect(command, want)
	}
}

// Commands pipelined before a wait are answered before it ends, and commands after it later.
func TestWaitKeepsItsPlaceInThePipeline(t *testing.T) {
	_, p := proxytest.StartBoth(t)
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
}

// A waiter whose client hangs up leaves the queue at once and never keeps a lock.
func TestWaiterHangsUp(t *testing.T) {
	_, p := proxytest.StartBoth(t)
	holder := proxytest.Dial(t, p.Addr)
	holder.Lock("job 30")
	gone := proxytest.Dial(t, p.Addr)
	gone.Send("LOCK job 30 WAIT 0")
	proxytest.AwaitWaiters(t, p, "job", 1)
	next := proxytest.Dial(t, p.Addr)
	next.Send("LOCK job 30 WAIT 5")
	proxytest.AwaitWaiters(t, p, "job", 2)
	gone.Close()
	proxytest.Eventually(t, 100*time.Millisecond, "one has left", func() bool {
		return proxytest.Waiters(t, p, "job") == 1
	})
	start := time.Now()
	holder.Expect("UNLOCK job", ":1\r\n")
	if got := next.Reply(); got[0] != ':' || time.Since(start) > 50*time.Millisecond {
		t.Errorf("%q after %v", got, time.Since(start))
	}
	next.Expect("UNLOCK job", ":1\r\n")

	// Hang-ups can cross with grants: the lock goes to the waiter that is still there.
	stayer := proxytest.Dial(t, p.Addr)
	for range 200 {
		holder.Lock("job 30")
		gone := proxytest.Dial(t, p.Addr)
		gone.Send("LOCK job 30 WAIT 0")
		proxytest.AwaitWaiters(t, p, "job", 1)
		stayer.Send("LOCK job 30 WAIT 5")
		go gone.Close()
		holder.Expect("UNLOCK job", ":1\r\n")
		start := time.Now()
		if got := stayer.Reply(); got[0] != ':' || time.Since(start) > 200*time.Millisecond {
			t.Fatalf("%q after %v", got, time.Since(start))
		}
		stayer.Expect("UNLOCK job", ":1\r\n")
	}
}

// A client that closes its sending side after its LOCK, as printf … | nc does, is answered if the
// lock is free, with or without WAIT. It doesn't queue for one that is held.
func TestHalfClosedClient(t *testing.T) {
	_, p := proxytest.StartBoth(t)
	holder := proxytest.Dial(t, p.Addr)
	for i, command := range []string{"LOCK job 10", "LOCK job 10 WAIT 5",
		"LOCK job 10 WAIT 5 SESSION"} {
		c := proxytest.Dial(t, p.Addr)
		c.WriteRaw(command + "\r\n")
		c.Conn.(*net.TCPConn).CloseWrite()
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
	c.Conn.(*net.TCPConn).CloseWrite()
	if got := c.Reply(); !strings.HasPrefix(got, "-TRYAGAIN ") || !strings.Contains(got, "closed") {
		t.Errorf("the lock is held: %q", got)
	}
	proxytest.Eventually(t, time.Second, "the client has left the queue", func() bool {
		return proxytest.Waiters(t, p, "job") == 0
	})
}

func TestWaitersOfDifferentUsers(t *testing.T) {
	server, p := proxytest.StartBoth(t, "--user", "app", "on", ">pw", "~app:*", "&*", "+@all",
		"--user", "other", "on", ">pw", "~other:*", "+@all")
	root, app, other := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr),
		proxytest.Dial(t, p.Addr)
	app.Expect("AUTH app pw", "+OK\r\n")
	other.Expect("AUTH other pw", "+OK\r\n")
	root.Lock("app:x 30")
	other.Expect("LOCK app:x 30 WAIT 5", "-NOPERM…")
	root2 := proxytest.Dial(t, p.Addr)
	root2.Send("LOCK app:x 30 WAIT 5")
	proxytest.AwaitWaiters(t, p, "app:x", 1)
	other.Expect("LOCK app:x 30 WAIT 5", "-NOPERM…") // not only at the end of its wait
	app.Send("LOCK app:x 30 WAIT 5")
	proxytest.AwaitWaiters(t, p, "app:x", 2)
	for _, c := range []*proxytest.Conn{root, root2} {
		c.Expect("UNLOCK app:x", ":1\r\n")
		next := map[*proxytest.Conn]*proxytest.Conn{root: root2, root2: app}[c]
		start := time.Now()
		if got := next.Reply(); got[0] != ':' || time.Since(start) > 50*time.Millisecond {
			t.Errorf("%q after %v", got, time.Since(start))
		}
	}
	app.Expect("UNLOCK app:x", ":1\r\n")
	// A release by a user that may not touch the lock's key changes nothing.
	root.Lock("app:x 30")
	other.Expect("UNLOCK app:x FORCE", "-NOPERM…")
	_ = server
}

func TestOwner(t *testing.T) {
	server, p := proxytest.StartBoth(t)
	a, b := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	token := a.Lock("job 30 OWNER me")
	if again := b.Lock("job 10 OWNER me"); again != token {
		t.Errorf("token %d, then %d", token, again)
	}
	direct := proxytest.GoRedis(t, server.Addr())
	if ttl := direct.PTTL(proxytest.Ctx, "job").Val(); ttl < 29*time.Second {
		t.Errorf("shortened to %v", ttl)
	}
	b.Lock("job 60 OWNER me WAIT 5")
	if ttl := direct.PTTL(proxytest.Ctx, "job").Val(); ttl < 59*time.Second {
		t.Errorf("not renewed: %v", ttl)
	}
	a.Expect("LOCK job 30 OWNER you", "$-1\r\n")
	a.Expect("LOCK job 30", "$-1\r\n")
	a.Expect("UNLOCK job", ":0\r\n") // b took it last
	b.Expect("UNLOCK job", ":1\r\n")
	if next := a.Lock("job 30 OWNER me"); next <= token {
		t.Errorf("token %d after %d", next, token)
	}
}

func TestRelock(t *testing.T) {
	server, p := proxytest.StartBoth(t)
	c := proxytest.Dial(t, p.Addr)
	direct := proxytest.GoRedis(t, server.Addr())
	token := c.Lock("job 30")
	c.Expect(fmt.Sprintf("RELOCK job %d 5", token), ":1\r\n")
	if ttl := direct.PTTL(proxytest.Ctx, "job").Val(); ttl > 5*time.Second ||
		ttl < 4900*time.Millisecond {
		t.Errorf("the lock runs for %v", ttl)
	}
	c.Expect(fmt.Sprintf("RELOCK job %d 0.05", token), ":1\r\n")
	c.Expect(fmt.Sprintf("RELOCK job %d 5", token+1), ":0\r\n")
	time.Sleep(60 * time.Millisecond)
	c.Expect(fmt.Sprintf("RELOCK job %d 5", token), ":0\r\n")
	c.Expect("EXISTS job", ":0\r\n")
}

func TestLockInfoAndScan(t *testing.T) {
	server, p := proxytest.StartBoth(t)
	c := proxytest.Dial(t, p.Addr)
	c.Expect("LOCKINFO job", "$-1\r\n")
	token := c.Lock("job 30 OWNER me")
	for i, head := range []string{"*20\r\n", "%10\r\n"} {
		c.Do(fmt.Sprint("HELLO ", i+2))
		got := c.Do("LOCKINFO job")
		for _, want := range []string{head,
			"$5\r\nstate\r\n$4\r\nheld\r\n$4\r\nkind\r\n$9\r\nlockproxy\r\n$5\r\ntoken\r\n:" +
				strconv.FormatInt(token, 10),
			"$5\r\nowner\r\n$2\r\nme\r\n$6\r\nclient\r\n", c.LocalAddr().String(),
			"$7\r\nsession\r\n:0\r\n$7\r\nwaiters\r\n:0\r\n"} {
			if !strings.Contains(got, want) {
				t.Errorf("LOCKINFO: %q lacks %q", got, want)
			}
		}
	}
	direct := proxytest.GoRedis(t, server.Addr())
	direct.Set(proxytest.Ctx, "foreign", time.Now().Unix()+20, 0)
	direct.Set(proxytest.Ctx, "old", time.Now().Unix()-20, 0)
	direct.Set(proxytest.Ctx, "data", "x", 0)
	for key, want := range map[string][]string{"foreign": {"$4\r\nheld\r\n", "$9\r\ntimestamp\r\n"},
		"old": {"$7\r\nexpired\r\n", "$9\r\ntimestamp\r\n"}, "data": {"-WRONGTYPE"},
		"none": {"_\r\n"}} {
		got := c.Do("LOCKINFO " + key)
		for _, part := range want {
			if !strings.Contains(got, part) {
				t.Errorf("LOCKINFO %s: %q lacks %q", key, got, part)
			}
		}
	}

	held := map[string]bool{"job": true}
	for i := range 300 {
		key := fmt.Sprintf("{s%d}lock:%d", i%3, i)
		c.Lock(key + " 30")
		if i%3 == 0 {
			c.Expect("UNLOCK "+key, ":1\r\n")
		} else {
			held[key] = true
		}
	}
	found := map[string]bool{}
	rdb := proxytest.GoRedis(t, p.Addr)
	cursor := "0"
	for {
		page, err := rdb.Do(proxytest.Ctx, "LOCKSCAN", cursor, "COUNT", "50").Slice()
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range page[1].([]any) {
			found[key.(string)] = true
		}
		if cursor = page[0].(string); cursor == "0" {
			break
		}
	}
	for key := range held {
		if !found[key] {
			t.Errorf("%s is held and was not found", key)
		}
	}
	for key := range found {
		if !held[key] {
			t.Errorf("%s was found and is not held", key)
		}
	}
	scan := rdb.Do(proxytest.Ctx, "LOCKSCAN", "0", "MATCH", "jo?", "COUNT", "10000")
	if page, err := scan.Slice(); err != nil || fmt.Sprint(page) != "[0 [job]]" {
		t.Errorf("LOCKSCAN MATCH: %v, %v", page, err)
	}
}

func TestFence(t *testing.T) {
	server, p := proxytest.StartBoth(t)
	c, other := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	c.Expect("SET text x", "+OK\r\n")
	token := c.Lock("job 30")
	fence := fmt.Sprintf("FENCE job %d ", token)
	for command, want := range map[string]string{
		"SET a 1": "+OK\r\n", "LPOP none 2": "*-1\r\n", "GET none": "$-1\r\n",
		"NOSUCH": "-ERR unknown command 'NOSUCH'…", "LPUSH text x": "-WRONGTYPE…",
		"INCRBY n 9007199254740993": ":9007199254740993\r\n",
	} {
		c.Expect(fence+command, want)
	}
	c.Expect("HELLO 3", "%7…")
	c.Expect(fence+"HSET h f v", ":1\r\n")
	c.Expect(fence+"HGETALL h", "%1\r\n$1\r\nf\r\n$1\r\nv\r\n")
	c.Expect(fence+"ZADD z 1.5 m", ":1\r\n")
	c.Expect(fence+"ZSCORE z m", ",1.5\r\n")
	c.Expect(fence+"GET none", "_\r\n")
	c.Expect(fence+"EVAL return{1} 0", "*1\r\n:1\r\n")
	other.Expect(fence+"SET a 2", "+OK\r\n") // the token is the right

	c.Expect("WATCH a", "+OK\r\n")
	c.Expect(fence+"SET a 3", "-ERR FENCE can't be used between WATCH and MULTI…")
	c.Expect("UNWATCH", "+OK\r\n")
	c.Expect("UNLOCK job", ":1\r\n")
	c.Expect(fence+"SET a 4", "-FENCED …")
	c.Expect("FENCE job 1 SET a 4", "-FENCED …")
	c.Expect("GET a", "$1\r\n2\r\n")
	// Nothing of it is left on the connection.
	c.Send("MULTI", "SET a 5", "EXEC")
	for _, want := range []string{"+OK", "+QUEUED", "*1\r\n+OK"} {
		if got := c.Reply(); !strings.HasPrefix(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	// One holder was paused past its timeout, and one lost its lock to another client since.
	token = c.Lock("job 0.05")
	time.Sleep(60 * time.Millisecond)
	c.Expect(fmt.Sprintf("FENCE job %d SET a 6", token), "-FENCED …")
	other.Lock("job 30")
	c.Expect(fmt.Sprintf("FENCE job %d SET a 6", token), "-FENCED …")
	_ = server
}

// Fenced writes of newer holders are never overtaken by those of older ones, whatever is paused.
func TestFencedWritesKeepTheOrderOfTokens(t *testing.T) {
	server, p := proxytest.StartBoth(t)
	direct := proxytest.GoRedis(t, server.Addr())
	const enough = 100 // writes; on a slow machine most tokens have expired when they come
	began := time.Now()
	var written atomic.Int64
	more := func() bool {
		passed := time.Since(began)
		return passed < 2*time.Second || written.Load() < enough && passed < 20*time.Second
	}
	var wg sync.WaitGroup
	for range 16 {
		c := proxytest.GoRedis(t, p.Addr)
		wg.Go(func() {
			for more() {
				token, err := c.Do(proxytest.Ctx, "LOCK", "job", "0.01", "WAIT", "5").Int64()
				if err != nil {
					t.Error(err)
					return
				}
				for range 8 { // well past the timeout
					fenced := c.Do(proxytest.Ctx, "FENCE", "job", token, "RPUSH", "log", token)
					if fenced.Err() == nil {
						written.Add(1)
					}
				}
			}
		})
	}
	wg.Wait()
	log := direct.LRange(proxytest.Ctx, "log", 0, -1).Val()
	last := int64(0)
	for i, entry := range log {
		token, _ := strconv.ParseInt(entry, 10, 64)
		if token < last {
			t.Fatalf("write %d is of token %d, after %d", i, token, last)
		}
		last = token
	}
	if len(log) < enough {
		t.Errorf("only %d writes", len(log))
	}
}

func TestSessionLock(t *testing.T) {
	server, p := proxytest.StartBoth(t)
	direct := proxytest.GoRedis(t, server.Addr())
	c, other := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	token := c.Lock("job 0.3 SESSION")
	c.Lock("second 30 SESSION")
	// It is renewed even while its connection is busy.
	c.Send("BLPOP none 1")
	time.Sleep(900 * time.Millisecond)
	other.Expect("LOCK job 30", "$-1\r\n")
	if got := c.Reply(); got != "*-1\r\n" {
		t.Errorf("BLPOP: %q", got)
	}
	c.Expect(proxytest.Unlock("job", token), ":1\r\n")
	other.Lock("job 30")
	time.Sleep(150 * time.Millisecond)
	other.Expect("UNLOCK job", ":1\r\n") // it is renewed no more

	other.Send("LOCK second 30 WAIT 5")
	proxytest.AwaitWaiters(t, p, "second", 1)
	start := time.Now()
	c.Close()
	if got := other.Reply(); got[0] != ':' || time.Since(start) > 100*time.Millisecond {
		t.Errorf("%q, %v after the holder's connection closed", got, time.Since(start))
	}

	// Lost: a push, or the connection is closed.
	for _, proto := range []string{"2", "3"} {
		c := proxytest.Dial(t, p.Addr)
		c.Do("HELLO " + proto)
		token := c.Lock("lost 0.3 SESSION")
		direct.Del(proxytest.Ctx, "lost")
		if proto == "2" {
			c.Closed()
			continue
		}
		want := fmt.Sprintf(">3\r\n$8\r\nlocklost\r\n$4\r\nlost\r\n:%d\r\n", token)
		if got := c.Reply(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		c.Closed()
	}
}

// While the upstream doesn't answer, a session lock is held
// no longer than the upstream would keep it.
func TestSessionLockIsLostWithTheUpstream(t *testing.T) {
	server, p := proxytest.StartBoth(t)
	c := proxytest.Dial(t, p.Addr)
	c.Do("HELLO 3")
	start := time.Now()
	token := c.Lock("job 0.5 SESSION")
	server.Pause()
	want := fmt.Sprintf(">3\r\n$8\r\nlocklost\r\n$3\r\njob\r\n:%d\r\n", token)
	if got := c.Reply(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if took := time.Since(start); took < 450*time.Millisecond || took > 700*time.Millisecond {
		t.Errorf("lost after %v", took)
	}
	c.Closed()
	server.Resume()
}

// A killed proxy leaves its session locks for their timeout, never less.
func TestKilledProxyLeavesSessionLocks(t *testing.T) {
	server := testredis.Start(t)
	dying, p := proxytest.StartProcess(t, "--upstream", server.URL()),
		proxytest.Start(t, server.URL(), nil)
	c, other := proxytest.Dial(t, dying.Addr), proxytest.Dial(t, p.Addr)
	c.Lock("job 1 SESSION")
	time.Sleep(500 * time.Millisecond) // renewed at least once
	other.Expect("LOCK job 30", "$-1\r\n")
	ttl := proxytest.GoRedis(t, server.Addr()).PTTL(proxytest.Ctx, "job").Val()
	dying.Cmd.Process.Kill()
	start := time.Now()
	other.Lock("job 30 WAIT 5")
	if took := time.Since(start); took < ttl-20*time.Millisecond ||
		took > time.Second+100*time.Millisecond {
		t.Errorf("taken %v after the proxy was killed, with %v to run", took, ttl)
	}
}

// A waiter whose proxy is killed or told to stop leaves the queue.
func TestWaitersOfAStoppedProxy(t *testing.T) {
	server := testredis.Start(t)
	dying, p := proxytest.StartProcess(t, "--upstream", server.URL()),
		proxytest.Start(t, server.URL(), nil)
	holder, gone, next := proxytest.Dial(t, p.Addr), proxytest.Dial(t, dying.Addr),
		proxytest.Dial(t, p.Addr)
	holder.Lock("job 30")
	gone.Send("LOCK job 30 WAIT 0")
	time.Sleep(100 * time.Millisecond)
	next.Send("LOCK job 30 WAIT 5")
	proxytest.AwaitWaiters(t, p, "job", 1)
	dying.Cmd.Process.Kill()
	dying.Ends(t, time.Second)
	start := time.Now()
	holder.Expect("UNLOCK job", ":1\r\n")
	if got := next.Reply(); got[0] != ':' || time.Since(start) > 150*time.Millisecond {
		t.Errorf("%q after %v", got, time.Since(start))
	}
	draining := proxytest.Start(t, server.URL(), nil)
	waiting := proxytest.Dial(t, draining.Addr)
	waiting.Send("LOCK job 30 WAIT 0")
	proxytest.AwaitWaiters(t, draining, "job", 1)
	if err := draining.Server.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	if got := waiting.Reply(); !strings.HasPrefix(got, "-TRYAGAIN the wait was ended") {
		t.Errorf("told %q", got)
	}
}

// fight lets clients take and release one lock for a time and returns how often each had it.
func fight(t *testing.T, d time.Duration, clients int,
	addr func(i int) string) (counts []int, longest, mean time.Duration) {
	counts = make([]int, clients)
	var inside, mu sync.Mutex
	var total time.Duration
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range clients {
		nc, err := net.Dial("tcp", addr(i))
		if err != nil {
			t.Fatal(err)
		}
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

func TestContention(t *testing.T) {
	server, one := proxytest.StartBoth(t)
	two := proxytest.Start(t, server.URL(), nil)
	direct := proxytest.GoRedis(t, server.Addr())
	for _, proxies := range [][]*proxytest.Proxy{{one}, {one, two}} {
		before, _ := scriptCalls(t, direct)
		counts, longest, mean := fight(t, 3*time.Second, 100, func(i int) string {
			return proxies[i%len(proxies)].Addr
		})
		after, _ := scriptCalls(t, direct)
		sum, ratio := fairness(counts)
		perAcquisition := float64(after-before) / float64(max(sum, 1))
		t.Logf(
			"%d proxies: %d acquisitions/s, fewest/most %.2f, %.2f scripts each, wait mean %v, "+
				"longest %v",
			len(proxies), sum/3, ratio, perAcquisition, mean, longest)
		if want := []float64{0, 0.8, 0.5}[len(proxies)]; ratio < want {
			t.Errorf("fewest/most is %.2f, want %.1f", ratio, want)
		}
		if perAcquisition > 2.2 {
			t.Errorf("%.2f scripts per acquisition", perAcquisition)
		}
		// 5 times the mean is the aim (see docs/bench-locks.md); a
		// busy machine can lose a poll interval once.
		if longest > 5*mean+250*time.Millisecond {
			t.Errorf("longest wait %v, mean %v", longest, mean)
		}
	}
}

func TestManyWaitersCostNothing(t *testing.T) {
	server, p := proxytest.StartBoth(t)
	direct := proxytest.GoRedis(t, server.Addr())
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
	proxytest.Eventually(t, 10*time.Second, "all wait", func() bool {
		return proxytest.Waiters(t, p, "job") == 1000
	})
	_, before := scriptCalls(t, direct)
	time.Sleep(2 * time.Second)
	_, after := scriptCalls(t, direct)
	if perSecond := float64(after-before) / 2; perSecond >= 20 {
		t.Errorf("1,000 waiters cost %.1f commands/s", perSecond)
	}
	var times []time.Duration
	for _, next := range first {
		start := time.Now()
		holder.Send("UNLOCK job")
		if got := next.Reply(); got[0] != ':' {
			t.Errorf("%q", got)
		}
		times = append(times, time.Since(start))
		holder = next
	}
	slices.Sort(times)
	if median := times[len(times)/2]; median > 5*time.Millisecond {
		t.Logf("answered after %v", times)
		// 5 ms is what it takes without the race detector; see make bench
		if median > 25*time.Millisecond {
			t.Errorf("the first waiter was answered after %v", times)
		}
	}
}

// Foreign clients that poll and waiters each get their share. One that comes through the proxy is
// noticed at once; one that doesn't is found when a queue leaves the lock free for a moment, as it
// does once a second.
func TestForeignClientsAndWaiters(t *testing.T) {
	t.Parallel()
	server, p := proxytest.StartBoth(t)
	t.Run("through the proxy", func(t *testing.T) { testForeignClient(t, p, p.Addr, 100) })
	t.Run("directly", func(t *testing.T) { testForeignClient(t, p, server.Addr(), 3) })
}

func testForeignClient(t *testing.T, p *proxytest.Proxy, addr string, atLeast int) {
	direct := proxytest.GoRedis(t, addr)
	key := "job:" + addr
	var wg sync.WaitGroup
	var foreign, ours int
	end := time.Now().Add(6 * time.Second)
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
	counts := make([]int, 4)
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
	if foreign < atLeast || ours < 20 {
		t.Errorf("starved: the foreign client had the lock %d times, the waiters %d times", foreign,
			ours)
	}
}

// A grant whose message was lost is found by its waiter.
func TestLostGrantIsFound(t *testing.T) {
	server, p := proxytest.StartBoth(t)
	holder, next := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	holder.Lock("job 30")
	next.Send("LOCK job 30 WAIT 5")
	proxytest.AwaitWaiters(t, p, "job", 1)
	// A release that named it would have written this: its connection and request.
	direct := proxytest.GoRedis(t, server.Addr())
	fields := strings.Fields(direct.Get(proxytest.Ctx, lockcmd.RecordKey([]byte("job"))).Val())
	prefix, number, _ := strings.Cut(fields[8], "-")
	n, _ := strconv.Atoi(number)
	granted, _ := strconv.ParseInt(fields[1], 10, 64)
	fields[1], fields[8], fields[9] = strconv.FormatInt(granted+7, 10),
		fmt.Sprintf("%s-%d", prefix, n+1), "1"
	direct.Set(proxytest.Ctx, lockcmd.RecordKey([]byte("job")), strings.Join(fields, " ")+"\n",
		time.Minute)
	if got, want := next.Reply(), fmt.Sprintf(":%d\r\n", granted+7); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
