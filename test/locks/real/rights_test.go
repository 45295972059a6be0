package real_test

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testwait"
)

func TestLockIsOfTheClientsDatabaseAndUser(t *testing.T) {
	t.Parallel()
	server, p := proxytest.StartBoth(t, "--requirepass", "secret", "--user", "app", "on", ">pw",
		"~app:*", "+@all", "--user", "reader", "on", ">pw", "~*", "+get")
	c := proxytest.Dial(t, p.Addr)
	c.Expect("LOCK app:x 300", "-NOAUTH Authentication required.\r\n")
	c.Expect("AUTH secret", "+OK\r\n")
	c.Expect("SELECT 3", "+OK\r\n")
	c.Lock("app:x 300")
	c.Expect("EXISTS app:x", ":1\r\n")
	c.Expect("SELECT 0", "+OK\r\n")
	c.Expect("EXISTS app:x", ":0\r\n")
	c.Lock("app:x 300")

	c.Expect("AUTH app wrong", "-WRONGPASS invalid username-password pair…")
	c.Expect("AUTH app pw", "+OK\r\n")
	c.Lock("app:y 300")
	c.Expect("LOCK other 300", "-NOPERM …") // the words differ between versions
	c.Expect("HELLO 3 AUTH reader pw", "%7…")
	c.Expect("LOCK app:z 300", "-NOPERM …")

	// Clients start as the URL's user, and return to it by RESET.
	p2 := proxytest.Start(t, "redis://app:pw@"+server.Addr()+"/5", nil)
	c = proxytest.Dial(t, p2.Addr)
	for range 2 {
		c.Expect("ACL WHOAMI", "$3\r\napp\r\n")
		c.Expect("CLIENT INFO", "$…")
		c.Lock("app:u 300")
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

// A user that can run scripts, but not the commands in them, gets the usual error of a denial.
func TestDenialWithinScript(t *testing.T) {
	t.Parallel()
	_, p := proxytest.StartBoth(t, "--user", "half", "on", ">pw", "~*", "+evalsha", "+eval",
		"+auth")
	c := proxytest.Dial(t, p.Addr)
	c.Expect("AUTH half pw", "+OK\r\n")
	c.Expect("LOCK job 300", "-NOPERM …")
}

// So does each of several commands that go together.
func TestDenialWithinABatch(t *testing.T) {
	t.Parallel()
	_, p := proxytest.StartBoth(t, "--user", "half", "on", ">pw", "~*", "+@all", "-time")
	c := proxytest.Dial(t, p.Addr)
	c.Expect("AUTH half pw", "+OK\r\n")
	c.Expect("LOCK job 300", "-NOPERM …")
	c.Send("LOCK a 300", "LOCK b 300", "LOCK c 300", "LOCK d 300")
	for range 4 {
		if got := c.Reply(); !strings.HasPrefix(got, "-NOPERM ") {
			t.Errorf("%q", got)
		}
	}
}

// A LOCKALL by a user who may not write one of its locks takes none, whether another lock was an
// expired foreign client's, free, or its owner's already.
func TestLockAllWithoutTheRightToOne(t *testing.T) {
	t.Parallel()
	server, p := proxytest.StartBoth(t, "--user", "half", "on", ">pw", "~*", "+@all")
	c, other := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	c.Expect("AUTH half pw", "+OK\r\n")
	mine := proxytest.Token(t, c.Do("LOCKALL 300 2 may:own not:own OWNER me"))
	admin := proxytest.Dial(t, server.Addr())
	if got := admin.Do("ACL SETUSER half -set (+set ~may:*)"); got != "+OK\r\n" {
		t.Logf("Redis before 7 has no such rights: %s", got)
		return
	}
	admin.Expect("SET may:over 1600000000", "+OK\r\n")
	last := other.Lock("may:free 300")
	other.Expect("UNLOCK may:free", ":1\r\n")
	for _, key := range []string{"may:over", "may:free", "may:new"} {
		c.Expect("LOCKALL 300 2 "+key+" not", "-NOPERM …")
		c.Expect("LOCKALL 300 2 not "+key, "-NOPERM …")
		other.Expect("LOCKINFO "+key, "$-1\r\n")
		token := other.Lock(key + " 300")
		if key == "may:free" && token <= last {
			t.Errorf("token %d after %d", token, last)
		}
	}
	c.Expect("LOCKALL 300 2 may:own not:own OWNER me", "-NOPERM …")
	c.Expect(fmt.Sprintf("UNLOCKALL %d 2 may:own not:own", mine), ":2\r\n")
}

// documentedUser is the user that locks in docs/operations.md, for ACL SETUSER. text is that page.
func documentedUser(t *testing.T) (line, text string) {
	t.Helper()
	page, err := os.ReadFile("../../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(page), "ACL SETUSER ")
	if !ok {
		t.Fatal("docs/operations.md has no ACL SETUSER line")
	}
	line, _, _ = strings.Cut(strings.ReplaceAll(rest, "'", ""), "\n")
	return line, string(page)
}

// A user with the rights that docs/operations.md names may not even PING. It is told of a changed
// key all the same, and of releases, also when nothing has happened for a while.
func TestDocumentedRightsToHear(t *testing.T) {
	t.Parallel()
	server, p := proxytest.StartBoth(t)
	line, _ := documentedUser(t)
	admin, c := proxytest.Dial(t, server.Addr()), proxytest.Dial(t, p.Addr)
	admin.Expect("ACL SETUSER "+line, "+OK\r\n")
	c.Expect("AUTH app password", "+OK\r\n")
	c.Lock("app:x 3600 SESSION")
	awaitTracking(t, proxytest.GoRedis(t, server.Addr()), "1")
	testwait.Until(t, "the proxy has looked whether Redis answers", func() bool {
		return strings.Contains(admin.Do("ACL LOG"), "$4\r\nping\r\n")
	})
	admin.Expect("PUBSUB CHANNELS lockproxy:wake:"+p.Server.ID(), "*1\r\n…")
	admin.Expect("DEL app:x", ":1\r\n")
	c.Closed()
}

// The rights that docs/operations.md names for a user that locks are enough, and cover no more than
// its own keys.
func TestDocumentedRights(t *testing.T) {
	t.Parallel()
	line, text := documentedUser(t)
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
	token := a.Lock("app:x 300 SESSION OWNER me")
	b.Send("LOCK app:x 300 WAIT 300")
	proxytest.AwaitWaiters(t, p, "app:x", 1)
	far.Send("LOCK app:x 300 WAIT 300")
	awaitPlaces(t, proxytest.Dial(t, p.Addr), "app:x", 2)
	a.Expect(proxytest.Unlock("app:x", token), ":1\r\n")
	var waiters sync.WaitGroup // proxies take turns: either can be the first
	for _, c := range []*proxytest.Conn{b, far} {
		waiters.Go(func() { // ends with the second UNLOCK
			if got, err := c.TryReply(); err != nil || got[0] != ':' {
				t.Errorf("%q, %v", got, err)
			}
			c.Expect("UNLOCK app:x", ":1\r\n")
		})
	}
	waiters.Wait()
	token = a.Lock("app:x 300 SESSION")
	b.Expect("LOCK app:x 300", "$-1\r\n")
	a.Expect(fmt.Sprintf("RELOCK app:x %d 300", token), ":1\r\n") // as a renewal does it
	a.Close()
	b.Lock("app:x 300 WAIT 300")
	b.Expect("LOCK other 300", "-NOPERM…")
	b.Expect("FENCE app:x 1 GET app:y", "-NOPERM…")

	admin.Expect("ACL SETUSER app +scan +watch +unwatch +multi +exec +discard +get", "+OK\r\n")
	token = b.Lock("app:y 300")
	b.Expect(fmt.Sprintf("FENCE app:y %d GET app:none", token), "$-1\r\n")
	b.Expect("LOCKSCAN 0 COUNT 1000", "*2\r\n$1\r\n0\r\n*2\r\n…")
	b.Expect("LOCK app:z 300 SHARED", "-NOPERM…")
	b.Expect("LOCKINFO app:z", "$-1\r\n")
	_, row, _ := strings.Cut(text, "| `+zrange ")
	row, _, _ = strings.Cut(row, "`")
	admin.Expect("ACL SETUSER app +zrange "+row, "+OK\r\n")
	token = b.Lock("app:z 300 SHARED OWNER me")
	second := far.Lock("app:z 300 LIMIT 2")
	b.Expect("LOCK app:z 300 LIMIT 2", "$-1\r\n")
	b.Expect(fmt.Sprintf("RELOCK app:z %d 300", token), ":1\r\n")
	b.Expect(fmt.Sprintf("FENCE app:z %d GET app:none", token), "$-1\r\n")
	b.Expect("LOCKINFO app:z HOLDERS", "*2…")
	b.Expect(proxytest.Unlock("app:z", token), ":1\r\n")
	far.Expect(proxytest.Unlock("app:z", second), ":1\r\n")
	b.Expect("LOCKALL 300 2 {app:a}1 {app:a}2", "-NOPERM…")
	b.Expect(fmt.Sprintf("UNLOCKALL %d 2 app:1 app:2", b.Lock("app:1 300")), ":1\r\n")
	b.Expect("LOCKALL 300 2 app:1 app:2", ":…")
	admin.Expect("ACL SETUSER app +pttl", "+OK\r\n")
	done := fmt.Sprintf("DONE app:page %d value", proxytest.Token(t, b.Do("ONCE app:page 300")))
	b.Expect(done, "-NOPERM…")
	_, row, _ = strings.Cut(text, "| `+get +pttl` | ONCE; and `")
	row, _, _ = strings.Cut(row, "`")
	admin.Expect("ACL SETUSER app "+row, "+OK\r\n")
	b.Expect(done, ":1\r\n")
	if log := admin.Do("ACL LOG"); strings.Contains(log, "publish") ||
		strings.Contains(log, "subscribe") || strings.Contains(log, "hello") {
		t.Errorf("a command needed more than the documented rights: %q", log)
	}
}

// A user that may not DEL is refused a shared lock, and leaves nothing behind: the lock is free.
func TestDenialOfDelLeavesNothing(t *testing.T) {
	t.Parallel()
	server, p := proxytest.StartBoth(t, "--user", "half", "on", ">pw", "~*", "+@all", "-del")
	c, other := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	c.Expect("AUTH half pw", "+OK\r\n")
	for _, before := range []string{"never locked", "locked before"} {
		if before == "locked before" { // there is a record
			other.Expect("UNLOCK job", ":1\r\n")
		}
		c.Expect("LOCK job 600 SHARED", "-NOPERM …")
		testwait.Until(t, "the lock is free", func() bool {
			return server.Ask("EXISTS", "job") == ":0"
		})
		other.Lock("job 600")
	}
}

// A user that may make only some of the writes to a shared lock's record is refused, or does all of
// what it asks for. It takes the lock from nobody.
func TestDenialLeavesSharedLocksAlone(t *testing.T) {
	t.Parallel()
	server, p := proxytest.StartBoth(t, "--user", "half", "on", ">pw", "~*", "+@all")
	admin := proxytest.Dial(t, server.Addr())
	if got := admin.Do("ACL SETUSER half (+get ~none)"); got != "+OK\r\n" {
		t.Logf("Before Redis 7 a script can't ask for rights: %s", got)
		return
	}
	holder, c := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	c.Expect("AUTH half pw", "+OK\r\n")
	for lacks := range strings.FieldsSeq("zadd zrem zremrangebyscore zrevrange zcount pexpire set") {
		held := func(token int64) string {
			return fmt.Sprintf("FENCE %s %d PING", lacks, token)
		}
		for _, request := range []string{"LOCK %s 900 SHARED", "LOCK %s 900 SHARED OWNER me",
			"LOCK %s 900 WAIT 0.001", "RELOCK %s %d 900", "UNLOCK %s %d"} {
			token := holder.Lock(lacks + " 300 SHARED")
			mine := c.Lock(lacks + " 600 SHARED OWNER me")
			args := []any{lacks, mine}[:strings.Count(request, "%")]
			admin.Expect("ACL SETUSER half -"+lacks, "+OK\r\n")
			got := c.Do(fmt.Sprintf(request, args...))
			admin.Expect("ACL SETUSER half +@all", "+OK\r\n")
			if t.Logf("%s without %s: %s", request, lacks, got); got[0] == '-' {
				holder.Expect(held(mine), "+PONG\r\n")
				holder.Expect("LOCKINFO "+lacks+" HOLDERS", "*2\r\n…")
			}
			holder.Expect(held(token), "+PONG\r\n")
			holder.Expect("UNLOCK "+lacks+" FORCE", ":1\r\n")
		}
	}
}
