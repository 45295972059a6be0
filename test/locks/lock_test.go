package locks_test

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"lockproxy/internal/proxytest"
	"lockproxy/internal/testredis"
	"lockproxy/lockcmd"
	"lockproxy/proxy"
)

func TestLockContract(t *testing.T) {
	_, p := proxytest.StartBoth(t)
	a, b := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)

	token := a.Lock("job 30")
	b.Expect("LOCK job 30", "$-1\r\n")
	a.Expect("LOCK job 30", "$-1\r\n") // not even its own holder
	b.Expect("UNLOCK job", ":0\r\n")   // another connection's lock
	b.Expect("UNLOCK job 1", ":0\r\n")
	b.Expect(proxytest.Unlock("job", token), ":1\r\n") // the token is the right to release it
	b.Expect(proxytest.Unlock("job", token), ":0\r\n")
	a.Lock("job 30")
	a.Expect("unlock job", ":1\r\n")
	a.Expect("UNLOCK job", ":0\r\n")
	a.Lock("job 30")
	b.Expect("UNLOCK job force", ":1\r\n")
	b.Expect("UNLOCK job FORCE", ":0\r\n")

	b.Expect("HELLO 3", "%7…")
	a.Lock("job 30")
	b.Expect("LOCK job 30", "_\r\n")
	b.Expect("UNLOCK job FORCE", ":1\r\n")
}

// outOfRange is the reply to a lock command whose timeout is arg.
func outOfRange(arg string) string {
	return fmt.Sprintf("-ERR timeout is not a float or out of range: %q (seconds, greater than 0, "+
		"at most 86400)\r\n", arg)
}

func TestLockErrors(t *testing.T) {
	_, p := proxytest.StartBoth(t)
	c := proxytest.Dial(t, p.Addr)
	c.Expect("RPUSH list x", ":1\r\n")
	c.Expect("SET text hello", "+OK\r\n")
	c.Expect("SET counter 42", "+OK\r\n")
	for command, want := range map[string]string{
		"LOCK":                  "-ERR wrong number of arguments for 'lock' command\r\n",
		"LOCK k":                "-ERR wrong number of arguments for 'lock' command\r\n",
		"UNLOCK":                "-ERR wrong number of arguments for 'unlock' command\r\n",
		"UNLOCK a b c":          "-ERR wrong number of arguments for 'unlock' command\r\n",
		"LOCK k ten":            outOfRange("ten"),
		"LOCK k inf":            outOfRange("inf"),
		"LOCK k nan":            outOfRange("nan"),
		"LOCK k 1e400":          outOfRange("1e400"),
		"LOCK k 0":              outOfRange("0"),
		"LOCK k 10s":            outOfRange("10s"),
		"LOCK k 86400.001":      outOfRange("86400.001"),
		"LOCK k -1e-400":        "-ERR timeout is negative\r\n",
		"LOCK k 1 WAIT -1e-400": "-ERR timeout is negative\r\n",
		"LOCK k -1":             "-ERR timeout is negative\r\n",
		"UNLOCK k x":            "-ERR value is not an integer or out of range\r\n",
		"UNLOCK k 1.5":          "-ERR value is not an integer or out of range\r\n",
		"LOCK list 1":           "-WRONGTYPE Key holds a value that is not a lock\r\n",
		"LOCK text 1":           "-WRONGTYPE Key holds a value that is not a lock\r\n",
		"LOCK counter 1":        "-WRONGTYPE Key holds a value that is not a lock\r\n",
		"UNLOCK list 1":         "-WRONGTYPE Key holds a value that is not a lock\r\n",
		"UNLOCK text FORCE":     "-WRONGTYPE Key holds a value that is not a lock\r\n",
		"UNLOCK counter":        "-WRONGTYPE Key holds a value that is not a lock\r\n",
	} {
		c.Expect(command, want)
	}
	c.Expect("LRANGE list 0 -1", "*1\r\n$1\r\nx\r\n")
	c.Expect("GET text", "$5\r\nhello\r\n")
	c.Expect("GET counter", "$2\r\n42\r\n")
	if got := c.Do("KEYS *lockproxy*"); got != "*0\r\n" {
		t.Errorf("refused locks left %q", got)
	}
}

func TestLockIsStoredAsATimestamp(t *testing.T) {
	server, p := proxytest.StartBoth(t)
	seconds := proxytest.Start(t, server.URL(), func(c *proxy.Config) { c.Locks.Seconds = true })
	direct := proxytest.GoRedis(t, server.Addr())
	for _, unit := range []struct {
		addr string
		ms   int64
	}{{p.Addr, 1}, {seconds.Addr, 1000}} {
		key := fmt.Sprintf("job%d", unit.ms)
		before := direct.Time(proxytest.Ctx).Val().UnixMilli()
		proxytest.Dial(t, unit.addr).Lock(key + " 2.5")
		after := direct.Time(proxytest.Ctx).Val().UnixMilli()
		value, err := direct.Get(proxytest.Ctx, key).Int64()
		if err != nil || value*unit.ms < before+2500 || value*unit.ms >= after+2500+unit.ms {
			t.Errorf("%s holds %d, %v; taken between %d and %d for 2.5 s", key, value, err, before,
				after)
		}
		ttl := direct.PTTL(proxytest.Ctx, key).Val().Milliseconds()
		if left := value*unit.ms - direct.Time(proxytest.Ctx).Val().UnixMilli(); ttl < left-1 ||
			ttl > left+1000 {
			t.Errorf("%s has a TTL of %d ms and %d ms to run", key, ttl, left)
		}
		record := lockcmd.RecordKey([]byte(key))
		if ttl := direct.PTTL(proxytest.Ctx, record).Val(); ttl < 10*time.Minute ||
			ttl > 10*time.Minute+4*time.Second {
			t.Errorf("the record of %s has a TTL of %v", key, ttl)
		}
	}
}

func TestLockKeysAreBinarySafe(t *testing.T) {
	_, p := proxytest.StartBoth(t)
	c := proxytest.Dial(t, p.Addr)
	for _, key := range []string{"", "a b", "a\r\nb", "\x00\xff", "{tag}x", "}{", "%d",
		strings.Repeat("k", 100000)} {
		quoted := fmt.Sprintf("$%d\r\n%s\r\n", len(key), key)
		c.WriteRaw("*3\r\n$4\r\nLOCK\r\n" + quoted + "$2\r\n30\r\n")
		if got := c.Reply(); got[0] != ':' {
			t.Errorf("LOCK %.20q: %q", key, got)
		}
		c.WriteRaw("*2\r\n$6\r\nUNLOCK\r\n" + quoted)
		if got := c.Reply(); got != ":1\r\n" {
			t.Errorf("UNLOCK %.20q: %q", key, got)
		}
	}
}

func TestLockExpiresAndIsTakenOver(t *testing.T) {
	server, p := proxytest.StartBoth(t)
	a, b := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	first := a.Lock("job 0.05")
	b.Expect("LOCK job 30", "$-1\r\n")
	time.Sleep(60 * time.Millisecond)
	second := b.Lock("job 30")
	if second <= first {
		t.Errorf("tokens %d, then %d", first, second)
	}
	a.Expect(proxytest.Unlock("job", first), ":0\r\n")
	a.Expect("UNLOCK job", ":0\r\n")
	b.Expect(proxytest.Unlock("job", second), ":1\r\n")

	// A foreign client's timestamp, in seconds or ms, live or expired, with or without a TTL.
	direct := proxytest.GoRedis(t, server.Addr())
	now := direct.Time(proxytest.Ctx).Val()
	for i, foreign := range []struct {
		value string
		live  bool
	}{
		{strconv.FormatInt(now.Unix()+20, 10), true},
		{strconv.FormatInt(now.UnixMilli()+20000, 10), true},
		{fmt.Sprintf("%d.25", now.Unix()+20), true},
		{strconv.FormatInt(now.Unix()-1, 10), false},
		{strconv.FormatInt(now.UnixMilli()-1, 10), false},
		{fmt.Sprintf("%d.75", now.Unix()-2), false},
		{fmt.Sprintf("%.13e", float64(now.UnixMilli()-5000)), false},
	} {
		key := fmt.Sprintf("foreign%d", i)
		direct.Set(proxytest.Ctx, key, foreign.value, 0)
		got := a.Do("LOCK " + key + " 30")
		if held := got == "$-1\r\n"; held != foreign.live {
			t.Errorf("LOCK of a key with %s: %q", foreign.value, got)
		}
		if foreign.live {
			a.Expect("UNLOCK "+key, ":0\r\n")
			a.Expect("GET "+key, fmt.Sprintf("$%d\r\n%s\r\n", len(foreign.value), foreign.value))
			a.Expect("UNLOCK "+key+" FORCE", ":1\r\n")
			a.Expect("EXISTS "+key, ":0\r\n")
		} else {
			a.Expect("UNLOCK "+key, ":1\r\n")
		}
	}
}

func TestTokensRise(t *testing.T) {
	server, p := proxytest.StartBoth(t)
	other := proxytest.Start(t, server.URL(), nil)
	direct := proxytest.GoRedis(t, server.Addr())
	last := int64(0)
	for i := range 60 {
		c := proxytest.Dial(t, []string{p.Addr, other.Addr}[i%2])
		timeout := "5"
		if i%4 == 3 { // left to expire
			timeout = "0.02"
		}
		token := c.Lock("job " + timeout)
		if token <= last {
			t.Fatalf("token %d after %d", token, last)
		}
		last = token
		switch i % 4 {
		case 0:
			c.Expect("UNLOCK job", ":1\r\n")
		case 1:
			c.Expect("UNLOCK job FORCE", ":1\r\n")
		case 2:
			direct.Del(proxytest.Ctx, "job")
		case 3:
			time.Sleep(25 * time.Millisecond)
		}
	}
	// A clock that stepped back looks like a last token from the future.
	future := last + 3600*1000*1000
	direct.Set(proxytest.Ctx, lockcmd.RecordKey([]byte("job")),
		fmt.Sprintf("v1 %d 0 0 0 0 0 released - 0 - -\n", future), 0)
	if token := proxytest.Dial(t, p.Addr).Lock("job 1"); token != future+1 {
		t.Errorf("token %d after %d", token, future)
	}
}

func TestDeletedOrOverwrittenUnderItsHolder(t *testing.T) {
	server, p := proxytest.StartBoth(t)
	direct := proxytest.GoRedis(t, server.Addr())
	a, b := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	a.Lock("job 30")
	direct.Del(proxytest.Ctx, "job")
	theirs := b.Lock("job 30")
	a.Expect("UNLOCK job", ":0\r\n")
	b.Expect(proxytest.Unlock("job", theirs), ":1\r\n")

	token := a.Lock("job 30")
	foreign := strconv.FormatInt(time.Now().UnixMilli()+60000, 10)
	direct.Set(proxytest.Ctx, "job", foreign, 0)
	a.Expect(proxytest.Unlock("job", token), ":0\r\n")
	a.Expect("GET job", "$13\r\n"+foreign+"\r\n")
	direct.Del(proxytest.Ctx, "job")
	a.Expect(proxytest.Unlock("job", token), ":0\r\n")
}

// README.md documents these commands, which move a lock's key, or its TTL.
func TestLockKeyIsMoved(t *testing.T) {
	server, p := proxytest.StartBoth(t)
	direct := proxytest.GoRedis(t, server.Addr())
	a, b := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)

	token := a.Lock("short 30")
	direct.PExpire(proxytest.Ctx, "short", 50*time.Millisecond)
	b.Lock("short 30 WAIT 1")
	a.Expect(proxytest.Unlock("short", token), ":0\r\n")

	token = a.Lock("lasting 1")
	direct.Persist(proxytest.Ctx, "lasting")
	a.Expect(proxytest.Unlock("lasting", token), ":0\r\n")
	a.Expect(fmt.Sprintf("RELOCK lasting %d 30", token), ":0\r\n")
	b.Expect("LOCK lasting 30", "$-1\r\n")
	b.Lock("lasting 30 WAIT 3")

	token = a.Lock("old 30")
	direct.Copy(proxytest.Ctx, "old", "copy", 0, false)
	direct.Rename(proxytest.Ctx, "old", "new")
	a.Expect(proxytest.Unlock("old", token), ":0\r\n")
	for _, name := range []string{"copy", "new"} {
		a.Expect(proxytest.Unlock(name, token), ":0\r\n")
		b.Expect("LOCK "+name+" 30", "$-1\r\n")
		if info := b.Do("LOCKINFO " + name); !strings.Contains(info, "\r\ntimestamp\r\n") {
			t.Errorf("%s: LOCKINFO says %q", name, info)
		}
	}
	b.Lock("old 30")

	token = a.Lock("swapped 30")
	direct.Do(proxytest.Ctx, "SWAPDB", 0, 1)
	a.Expect(proxytest.Unlock("swapped", token), ":0\r\n")
	b.Lock("swapped 30")
	direct.Do(proxytest.Ctx, "SWAPDB", 0, 1)
	b.Expect("LOCK swapped 30", "$-1\r\n")
	a.Expect(proxytest.Unlock("swapped", token), ":1\r\n")
}

// A lock taken over from an expired foreign client stays its holder's although the loser of the
// race, which had read the expired value too, replaces the timestamp. The proxy repairs it.
func TestTakeoverGracePeriod(t *testing.T) {
	server, p := proxytest.StartBoth(t)
	direct := proxytest.GoRedis(t, server.Addr())
	a, b := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	direct.Set(proxytest.Ctx, "job", time.Now().Unix()-10, 0)
	token := a.Lock("job 30")
	written := direct.Get(proxytest.Ctx, "job").Val()
	loser := strconv.FormatInt(time.Now().Unix()+5, 10)
	if old := direct.GetSet(proxytest.Ctx, "job", loser).Val(); old != written {
		t.Fatalf("GETSET returned %s, want %s", old, written)
	}
	b.Expect("LOCK job 30", "$-1\r\n")
	proxytest.Eventually(t, 300*time.Millisecond, "the timestamp is repaired", func() bool {
		return direct.Get(proxytest.Ctx, "job").Val() == written
	})
	if ttl := direct.PTTL(proxytest.Ctx, "job").Val(); ttl < 25*time.Second {
		t.Errorf("repaired with a TTL of %v", ttl)
	}
	// Even with an expired timestamp it is refused to others and released by its holder.
	direct.Set(proxytest.Ctx, "job", time.Now().Unix()-10, 0)
	b.Expect("LOCK job 30", "$-1\r\n")
	direct.Set(proxytest.Ctx, "job", time.Now().Unix()-10, 0)
	a.Expect(proxytest.Unlock("job", token), ":1\r\n")
	b.Expect("EXISTS job", ":0\r\n")
}

func TestLockInTransaction(t *testing.T) {
	_, p := proxytest.StartBoth(t)
	c := proxytest.Dial(t, p.Addr)
	c.Send("MULTI", "SET x 1", "LOCK job 30", "EXEC", "GET x", "LOCK job 30", "MULTI", "LOCK",
		"EXEC", "MULTI", "GET x", "DISCARD", "UNLOCK job")
	for i, want := range []string{"+OK", "+QUEUED", "-ERR Command not allowed inside a transaction",
		"-EXECABORT", "$-1", ":", "+OK",
		"-ERR wrong number of arguments for 'lock' command", "-EXECABORT", "+OK", "+QUEUED", "+OK",
		":1"} {
		if got := c.Reply(); !strings.HasPrefix(got, want) {
			t.Errorf("reply %d: %q, want %q", i, got, want)
		}
	}
}

func TestLockIsOfTheClientsDatabaseAndUser(t *testing.T) {
	server, p := proxytest.StartBoth(t, "--requirepass", "secret", "--user", "app", "on", ">pw",
		"~app:*", "+@all", "--user", "reader", "on", ">pw", "~*", "+get")
	c := proxytest.Dial(t, p.Addr)
	c.Expect("LOCK app:x 30", "-NOAUTH Authentication required.\r\n")
	c.Expect("AUTH secret", "+OK\r\n")
	c.Expect("SELECT 3", "+OK\r\n")
	c.Lock("app:x 30")
	c.Expect("EXISTS app:x", ":1\r\n")
	c.Expect("SELECT 0", "+OK\r\n")
	c.Expect("EXISTS app:x", ":0\r\n")
	c.Lock("app:x 30")

	c.Expect("AUTH app wrong", "-WRONGPASS invalid username-password pair…")
	c.Expect("AUTH app pw", "+OK\r\n")
	c.Lock("app:y 30")
	c.Expect("LOCK other 30", "-NOPERM …") // the words differ between versions
	c.Expect("HELLO 3 AUTH reader pw", "%7…")
	c.Expect("LOCK app:z 30", "-NOPERM …")

	// Clients start as the URL's user, and return to it by RESET.
	p2 := proxytest.Start(t, "redis://app:pw@"+server.Addr()+"/5", nil)
	c = proxytest.Dial(t, p2.Addr)
	for range 2 {
		c.Expect("ACL WHOAMI", "$3\r\napp\r\n")
		c.Expect("CLIENT INFO", "$…")
		c.Lock("app:u 30")
		c.Expect("UNLOCK app:u", ":1\r\n")
		c.Expect("AUTH secret", "+OK\r\n")
		c.Expect("SELECT 1", "+OK\r\n")
		c.Expect("RESET", "+RESET\r\n")
	}
	c.Expect("SET app:db here", "+OK\r\n")
	c.Expect("AUTH secret", "+OK\r\n")
	c.Expect("SELECT 5", "+OK\r\n")
	c.Expect("EXISTS app:db", ":1\r\n")
}

// A user that may run scripts, but not the commands in them, gets the usual error of a denial.
func TestDenialWithinScript(t *testing.T) {
	_, p := proxytest.StartBoth(t, "--user", "half", "on", ">pw", "~*", "+evalsha", "+eval",
		"+auth")
	c := proxytest.Dial(t, p.Addr)
	c.Expect("AUTH half pw", "+OK\r\n")
	c.Expect("LOCK job 30", "-NOPERM …")
}

func TestLockUnderReplyOff(t *testing.T) {
	_, p := proxytest.StartBoth(t)
	c := proxytest.Dial(t, p.Addr)
	c.Send("CLIENT REPLY OFF", "LOCK a 30", "SET x 1", "CLIENT REPLY ON", "EXISTS a",
		"CLIENT REPLY SKIP", "LOCK b 30", "EXISTS b", "CLIENT REPLY SKIP", "UNLOCK b", "EXISTS b")
	for _, want := range []string{"+OK\r\n", ":1\r\n", ":1\r\n", ":0\r\n"} {
		if got := c.Reply(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestLockInSubscribeMode(t *testing.T) {
	_, p := proxytest.StartBoth(t)
	c := proxytest.Dial(t, p.Addr)
	c.Send("SUBSCRIBE a b", "LOCK job 30", "UNSUBSCRIBE", "LOCK job 30")
	for _, want := range []string{"*3\r\n$9\r\nsubscribe", "*3\r\n$9\r\nsubscribe",
		"-ERR Can't execute 'lock': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET " +
			"are allowed in this context\r\n",
		"*3\r\n$11\r\nunsubscribe", "*3\r\n$11\r\nunsubscribe", ":"} {
		if got := c.Reply(); !strings.HasPrefix(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	c.Expect("HELLO 3", "%7…")
	c.Send("SUBSCRIBE a", "UNLOCK job")
	for _, want := range []string{">3\r\n$9\r\nsubscribe", ":1\r\n"} {
		if got := c.Reply(); !strings.HasPrefix(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// The next holder sees every write that the last holder sent
// before UNLOCK, although all went out in one pipeline.
func TestWritesBeforeUnlockAreApplied(t *testing.T) {
	_, p := proxytest.StartBoth(t)
	writer, reader := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	for i := range 200 {
		token := writer.Lock("job 30")
		var pipeline []string
		for j := range 20 {
			pipeline = append(pipeline, fmt.Sprintf("SET x%d %d", j, i))
		}
		writer.Send(append(pipeline, proxytest.Unlock("job", token))...)
		var got string
		for got = reader.Do("LOCK job 30"); got == "$-1\r\n"; got = reader.Do("LOCK job 30") {
		}
		reader.Expect("GET x19", fmt.Sprintf("$%d\r\n%d\r\n", len(strconv.Itoa(i)), i))
		reader.Expect("UNLOCK job", ":1\r\n")
		for range 20 {
			writer.Reply()
		}
		if got := writer.Reply(); got != ":1\r\n" {
			t.Fatalf("UNLOCK: %q", got)
		}
	}
}

// 100 clients, two proxies, and one lock around an otherwise unprotected counter.
func TestManyClientsOneLock(t *testing.T) {
	server, p := proxytest.StartBoth(t)
	other := proxytest.Start(t, server.URL(), nil)
	direct := proxytest.GoRedis(t, server.Addr())
	const clients, rounds = 100, 5
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			c := proxytest.GoRedis(t, []string{p.Addr, other.Addr}[i%2])
			for range rounds {
				var token int64
				for token == 0 {
					got, err := c.Do(proxytest.Ctx, "LOCK", "job", "20").Result()
					switch {
					case got != nil:
						token = got.(int64)
					case err.Error() == "redis: nil":
						time.Sleep(time.Duration(1+rand.IntN(20)) * time.Millisecond)
					default:
						t.Error(err)
						return
					}
				}
				n, _ := direct.Get(proxytest.Ctx, "counter").Int()
				direct.Set(proxytest.Ctx, "counter", n+1, 0)
				got, err := c.Do(proxytest.Ctx, "UNLOCK", "job", token).Result()
				if got != int64(1) {
					t.Errorf("UNLOCK: %v, %v", got, err)
				}
			}
		})
	}
	wg.Wait()
	if n, _ := direct.Get(proxytest.Ctx, "counter").Int(); n != clients*rounds {
		t.Errorf("the counter is %d, want %d", n, clients*rounds)
	}
}

func TestScriptFlushGoesUnnoticed(t *testing.T) {
	_, p := proxytest.StartBoth(t)
	c := proxytest.Dial(t, p.Addr)
	for range 3 {
		c.Lock("job 30")
		c.Expect("SCRIPT FLUSH", "+OK\r\n")
		c.Expect("UNLOCK job", ":1\r\n")
	}
}

func TestRedisCLI(t *testing.T) {
	_, p := proxytest.StartBoth(t)
	_, port, _ := strings.Cut(p.Addr, ":")
	cli := func(args ...string) string {
		out, err := exec.Command("redis-cli", append([]string{"-p", port, "--no-raw"},
			args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("redis-cli %v: %v: %s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	token, ok := strings.CutPrefix(cli("LOCK", "job", "30"), "(integer) ")
	if !ok {
		t.Fatalf("LOCK: %q", token)
	}
	for _, step := range []struct{ command, want string }{
		{"LOCK job 30", "(nil)"},
		{"UNLOCK job 1", "(integer) 0"},
		{"UNLOCK job " + token, "(integer) 1"},
		{"-3 LOCK job abc",
			`(error) ERR timeout is not a float or out of range: "abc" ` +
				`(seconds, greater than 0, at most 86400)`},
		{"SET a 1", "OK"},
		{"EVAL return{1,2} 0", "1) (integer) 1\n2) (integer) 2"},
	} {
		if got := cli(strings.Fields(step.command)...); got != step.want {
			t.Errorf("%s: %q, want %q", step.command, got, step.want)
		}
	}
}

// Without its record, which was evicted, no client can prove that it holds the lock: it is held
// until its timeout, then free.
func TestEvictedLockRecord(t *testing.T) {
	server, p := proxytest.StartBoth(t)
	direct := proxytest.GoRedis(t, server.Addr())
	a, b := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	token := a.Lock("job 0.2")
	direct.Del(proxytest.Ctx, lockcmd.RecordKey([]byte("job")))
	a.Expect(proxytest.Unlock("job", token), ":0\r\n")
	b.Expect("LOCK job 30", "$-1\r\n")
	if got := b.Do("LOCKINFO job"); !strings.Contains(got, "$9\r\ntimestamp\r\n") {
		t.Errorf("LOCKINFO: %q", got)
	}
	time.Sleep(210 * time.Millisecond)
	if next := b.Lock("job 30"); next <= token {
		t.Errorf("token %d after %d", next, token)
	}
	// Foreign data at the record's key is left alone, whatever its type.
	for _, foreign := range []string{"SET %s data", "RPUSH %s data", "SET %s 1795226400123"} {
		direct.FlushAll(proxytest.Ctx)
		b.Do(fmt.Sprintf(foreign, lockcmd.RecordKey([]byte("job"))))
		b.Expect("LOCK job 30", "-WRONGTYPE…")
		b.Expect("EXISTS job "+lockcmd.RecordKey([]byte("job")), ":1\r\n")
	}
}

func TestEvictionIsWarnedOf(t *testing.T) {
	t.Parallel()
	for policy, want := range map[string]bool{"noeviction": false, "volatile-lru": true} {
		server := testredis.Start(t, "--maxmemory", "100mb", "--maxmemory-policy", policy)
		p := proxytest.StartProcess(t, "--upstream", server.URL())
		time.Sleep(300 * time.Millisecond)
		p.Cmd.Process.Kill()
		p.Ends(t, time.Second)
		if got := strings.Contains(p.Log.String(), "may evict locks"); got != want {
			t.Errorf("%s: the log says\n%s", policy, p.Log.String())
		}
	}
}

// cli is a redis-cli process that takes its commands from a pipe.
type cli struct {
	t    *testing.T
	cmd  *exec.Cmd
	in   io.WriteCloser
	outs *bufio.Scanner
}

func startCLI(t *testing.T, addr string) *cli {
	_, port, _ := strings.Cut(addr, ":")
	c := &cli{t: t, cmd: exec.Command("redis-cli", "-p", port)}
	c.in, _ = c.cmd.StdinPipe()
	out, _ := c.cmd.StdoutPipe()
	c.outs = bufio.NewScanner(out)
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.cmd.Process.Kill(); c.cmd.Wait() })
	return c
}

func (c *cli) do(command string) string {
	fmt.Fprintln(c.in, command)
	if !c.outs.Scan() {
		c.t.Fatalf("%s: %v", command, c.outs.Err())
	}
	return c.outs.Text()
}

// A holder was paused past its timeout: no command with its token has any effect. A write without
// FENCE has: that is what FENCE is for.
func TestPausedHolder(t *testing.T) {
	_, p := proxytest.StartBoth(t)
	holder, next := startCLI(t, p.Addr), proxytest.Dial(t, p.Addr)
	token := holder.do("LOCK job 0.2")
	holder.cmd.Process.Signal(syscall.SIGSTOP)
	taken := next.Lock("job 30 WAIT 5")
	next.Expect("SET x next", "+OK\r\n")
	holder.cmd.Process.Signal(syscall.SIGCONT)
	for command, want := range map[string]string{"UNLOCK job " + token: "0", "RELOCK job " + token +
		" 30": "0", "UNLOCK job": "0"} {
		if got := holder.do(command); got != want {
			t.Errorf("%s: %q, want %q", command, got, want)
		}
	}
	if got := holder.do("FENCE job " + token + " SET x late"); !strings.HasPrefix(got, "FENCED ") {
		t.Errorf("FENCE: %q", got)
	}
	next.Expect("GET x", "$4\r\nnext\r\n")
	holder.do("") // redis-cli separates an error from its next output
	holder.do("SET x plain")
	next.Expect("GET x", "$5\r\nplain\r\n")
	next.Expect(proxytest.Unlock("job", taken), ":1\r\n")
}

func TestKilledClientFreesItsSessionLock(t *testing.T) {
	_, p := proxytest.StartBoth(t)
	holder, next := startCLI(t, p.Addr), proxytest.Dial(t, p.Addr)
	holder.do("LOCK job 30 SESSION")
	next.Send("LOCK job 30 WAIT 5")
	proxytest.AwaitWaiters(t, p, "job", 1)
	start := time.Now()
	holder.cmd.Process.Kill()
	if got := next.Reply(); got[0] != ':' || time.Since(start) > 100*time.Millisecond {
		t.Errorf("%q after %v", got, time.Since(start))
	}
}

// The loser's write can come even after the winner has released the lock and it was taken again:
// the grace period continues.
func TestNextLockInGracePeriod(t *testing.T) {
	server, p := proxytest.StartBoth(t)
	direct := proxytest.GoRedis(t, server.Addr())
	a, b := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	for _, handOver := range []bool{false, true} {
		direct.Set(proxytest.Ctx, "job", time.Now().Unix()-10, 0)
		a.Lock("job 30")
		holder := a
		if handOver {
			b.Send("LOCK job 30 WAIT 5")
			proxytest.AwaitWaiters(t, p, "job", 1)
			a.Expect("UNLOCK job", ":1\r\n")
			if got := b.Reply(); got[0] != ':' {
				t.Fatalf("%q", got)
			}
			holder = b
		} else {
			a.Expect("UNLOCK job", ":1\r\n")
			a.Lock("job 30")
		}
		written := direct.GetSet(proxytest.Ctx, "job", time.Now().Unix()+2).Val()
		proxytest.Eventually(t, 600*time.Millisecond, "the timestamp is repaired", func() bool {
			return direct.Get(proxytest.Ctx, "job").Val() == written
		})
		holder.Expect("UNLOCK job", ":1\r\n")
		direct.FlushAll(proxytest.Ctx)
	}
}

// The rights that README.md names for a user who locks are
// enough, and cover no more than its own keys.
func TestDocumentedRights(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(readme), "ACL SETUSER ")
	line, _, _ := strings.Cut(rest, "\n")
	if !ok {
		t.Fatal("README.md has no ACL SETUSER line")
	}
	server, p := proxytest.StartBoth(t)
	other := proxytest.Start(t, server.URL(), nil)
	admin := proxytest.Dial(t, server.Addr())
	admin.Expect("ACL SETUSER "+line, "+OK\r\n")
	var clients []*proxytest.Conn
	for _, proxy := range []*proxytest.Proxy{p, p, other} {
		c := proxytest.Dial(t, proxy.Addr)
		c.Expect("AUTH app password", "+OK\r\n")
		clients = append(clients, c)
	}
	a, b, far := clients[0], clients[1], clients[2]
	token := a.Lock("app:x 30 SESSION OWNER me")
	b.Send("LOCK app:x 30 WAIT 5")
	proxytest.AwaitWaiters(t, p, "app:x", 1)
	far.Send("LOCK app:x 30 WAIT 5")
	time.Sleep(300 * time.Millisecond) // until the other proxy listens and is recorded as waiting
	a.Expect(proxytest.Unlock("app:x", token), ":1\r\n")
	for _, c := range []*proxytest.Conn{b, far} {
		start := time.Now()
		if got := c.Reply(); got[0] != ':' || time.Since(start) > 100*time.Millisecond {
			t.Errorf("%q after %v", got, time.Since(start))
		}
		c.Expect("UNLOCK app:x", ":1\r\n")
	}
	a.Lock("app:x 0.2 SESSION")
	time.Sleep(500 * time.Millisecond)
	b.Expect("LOCK app:x 30", "$-1\r\n") // renewed
	a.Close()
	b.Lock("app:x 30 WAIT 5")
	b.Expect("LOCK other 30", "-NOPERM…")
	b.Expect("FENCE app:x 1 GET app:y", "-NOPERM…")

	admin.Expect("ACL SETUSER app +scan +watch +unwatch +multi +exec +discard +get", "+OK\r\n")
	token = b.Lock("app:y 30")
	b.Expect(fmt.Sprintf("FENCE app:y %d GET app:none", token), "$-1\r\n")
	b.Expect("LOCKSCAN 0 COUNT 1000", "*2\r\n$1\r\n0\r\n*2\r\n…")
	if log := admin.Do("ACL LOG"); strings.Contains(log, "publish") ||
		strings.Contains(log, "subscribe") || strings.Contains(log, "hello") {
		t.Errorf("a command needed more than the documented rights: %q", log)
	}
}
