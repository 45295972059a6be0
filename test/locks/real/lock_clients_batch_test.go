package real_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/lockcmd/keyname"
)

// manyLock has n clients lock and unlock a lock each, some times. at is its address; login comes
// first.
func manyLock(t *testing.T, n int, at, login, prefix string, times int) {
	t.Helper()
	var clients sync.WaitGroup
	for i := range n {
		c := proxytest.Dial(t, at)
		if login != "" {
			c.Expect(login, "+OK\r\n")
		}
		key := fmt.Sprint(prefix, i)
		clients.Go(func() {
			for range times {
				token := c.Do("LOCK " + key + " 300")
				if !tokenReply.MatchString(token) {
					t.Errorf("LOCK %s: %q", key, token)
					return
				}
				text := strings.TrimSpace(token[1:])
				if rand.IntN(4) == 0 && c.Do("RELOCK "+key+" "+text+" 300") != ":1\r\n" {
					t.Errorf("RELOCK %s fails", key)
					return
				}
				if got := c.Do("LOCK " + key + " 300"); got != "$-1\r\n" {
					t.Errorf("LOCK %s, which is held: %q", key, got)
					return
				}
				if got := c.Do("UNLOCK " + key + " " + text); got != ":1\r\n" {
					t.Errorf("UNLOCK %s: %q", key, got)
					return
				}
			}
		})
	}
	clients.Wait()
}

// The lock commands of many clients go to the upstream together, and each client gets its own
// answer, errors included.
func TestLocksOfManyClients(t *testing.T) {
	t.Parallel()
	server, p := proxytest.StartBoth(t)
	admin := proxytest.Dial(t, server.Addr())
	for i := range 4 {
		admin.Do(fmt.Sprint("RPUSH data", i, " x"))
	}
	manyLock(t, 2, p.Addr, "", "first", 20) // the scripts are known now
	admin.Expect("CONFIG RESETSTAT", "+OK\r\n")
	over := make(chan struct{})
	var wrong sync.WaitGroup
	for i := range 4 {
		c := proxytest.Dial(t, p.Addr)
		wrong.Go(func() { // ends with over
			for {
				select {
				case <-over:
					return
				default:
				}
				got := c.Do(fmt.Sprint("LOCK data", i, " 300"))
				if !strings.HasPrefix(got, "-WRONGTYPE ") {
					t.Errorf("LOCK of a list: %q", got)
					return
				}
			}
		})
	}
	const clients, times = 32, 12
	manyLock(t, clients, p.Addr, "", "k", times)
	close(over)
	wrong.Wait()
	calls := 0
	stats := admin.Do("INFO commandstats")
	if _, text, found := strings.Cut(stats, "cmdstat_evalsha:calls="); found {
		fmt.Sscan(text, &calls)
	}
	const pairs = clients * times
	t.Logf("%d pairs took %d scripts", pairs, calls)
	if calls > 3*pairs {
		t.Errorf("%d pairs of LOCK and UNLOCK, and a LOCK that is refused, took %d scripts", pairs,
			calls)
	}
}

// What a user may not do is refused to that client alone, though Redis refuses the whole batch.
func TestLocksOfManyClientsAndRights(t *testing.T) {
	t.Parallel()
	for _, rights := range []string{"+@all", "+@all -script"} {
		server, p := proxytest.StartBoth(t)
		admin := proxytest.Dial(t, server.Addr())
		admin.Expect("ACL SETUSER u on >pw ~ok* &lockproxy* "+rights, "+OK\r\n")
		over := make(chan struct{})
		var others sync.WaitGroup
		others.Go(func() { // ends with over
			c := proxytest.Dial(t, p.Addr)
			c.Expect("AUTH u pw", "+OK\r\n")
			for i := 0; ; i++ {
				select {
				case <-over:
					return
				default:
				}
				if got := c.Do("LOCK forbidden 300"); !strings.HasPrefix(got, "-NOPERM ") {
					t.Errorf("LOCK of a key that the user may not touch: %q", got)
				}
				if i%20 == 0 {
					admin.Expect("SCRIPT FLUSH", "+OK\r\n")
				}
			}
		})
		manyLock(t, 16, p.Addr, "AUTH u pw", "ok", 5)
		close(over)
		others.Wait()
	}
}

// On a full server a LOCK is refused, but what goes with it is not: an UNLOCK makes room.
func TestLockBatchOnAFullServer(t *testing.T) {
	t.Parallel()
	server, p := proxytest.StartBoth(t)
	c := proxytest.Dial(t, p.Addr)
	held := c.Lock("held 300")
	c.Expect(proxytest.Unlock("k", c.Lock("k 300")), ":1\r\n")
	admin := proxytest.Dial(t, server.Addr())
	admin.Expect("CONFIG SET maxmemory 1", "+OK\r\n")
	c.Send("LOCK k 300", "LOCKINFO held", proxytest.Unlock("held", held), "LOCKINFO k")
	if got := c.Reply(); !strings.HasPrefix(got, "-OOM ") {
		t.Errorf("LOCK on a full server: %q", got)
	}
	if got := c.Reply(); !strings.HasPrefix(got, "*") {
		t.Errorf("LOCKINFO: %q", got)
	}
	c.WantReply(":1\r\n")
	if got := c.Reply(); got != "$-1\r\n" && got != "*-1\r\n" {
		t.Errorf("LOCKINFO of a free lock: %q", got)
	}
}

// An upstream can be so slow that it leaves out calls of a batch: they are asked again, together. As
// of 7.2 its clock stands still within a script, and none is left out.
func TestCallsThatWereLeftOut(t *testing.T) {
	t.Parallel()
	server, p := proxytest.StartBoth(t)
	c, admin := proxytest.SharedClient(t, p.Addr), proxytest.Dial(t, server.Addr())
	c.Expect(proxytest.Unlock("k", c.Lock("k 300")), ":1\r\n")
	const locks = 32
	// scripts is how many a pipeline of LOCKs takes.
	scripts := func(prefix string) (calls int) {
		var pipeline []string
		for i := range locks {
			pipeline = append(pipeline, fmt.Sprint("LOCK ", prefix, i, " 300"))
		}
		admin.Expect("CONFIG RESETSTAT", "+OK\r\n")
		c.Send(pipeline...)
		for i := range locks {
			if got := c.Reply(); !tokenReply.MatchString(got) {
				t.Errorf("LOCK %d: %q", i, got)
			}
		}
		_, text, _ := strings.Cut(admin.Do("INFO commandstats"), "cmdstat_evalsha:calls=")
		fmt.Sscan(text, &calls)
		return calls
	}
	scripts("first") // the scripts are known now
	// Records of many proxies that waited once are what takes a script longest.
	now := time.Now().UnixMilli()
	var waiting []string
	for i := range 200 {
		waiting = append(waiting, fmt.Sprintf("p%d:%d:0:%d", i, now-60_000, now-60_000))
	}
	record := fmt.Sprintf("v1 1 0 0 0 0 0 released - 0 - %s\n", strings.Join(waiting, ","))
	round := 0
	testwait.Until(t, "calls of slow LOCKs are left out", func() bool {
		round++ // on a slow machine those of quick ones are, too
		quick := scripts(fmt.Sprintf("quick%d-", round))
		prefix := fmt.Sprintf("slow%d-", round)
		for i := range locks {
			admin.DoWords("SET", keyname.Record(fmt.Append(nil, prefix, i)), record)
		}
		slow := scripts(prefix)
		t.Logf("%d LOCKs have taken %d scripts, slow ones %d", locks, quick, slow)
		if slow > locks {
			t.Error("they were asked singly")
		}
		return slow > quick || testredis.Since(7, 2) || t.Failed()
	})
}
