package real_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
)

const untold = "-NOREPLICAS the upstream does not tell whether it is on disk (ERR "

// startSyncing starts a server with an append-only file and a proxy with --require-fsync. If the
// server is too old for that, no lock is given out, and ok is false.
func startSyncing(t *testing.T, appendfsync string, replicas int) (
	server *testredis.Server, p *proxytest.Proxy, ok bool,
) {
	t.Helper()
	server = testredis.Start(t, "--appendonly", "yes", "--appendfsync", appendfsync)
	p = proxytest.Start(t, server.URL(), proxytest.WithFsync(replicas, 5*time.Minute))
	if server.KnowsWaitaof() {
		return server, p, true
	}
	proxytest.Dial(t, p.Addr).Expect("LOCK refused 300", untold+"unknown command…")
	if got := server.Ask("EXISTS", "refused"); got != ":0" {
		t.Errorf("the lock was left behind: %s", got)
	}
	return server, p, false
}

// Without an append-only file, or before Redis 7.2, no command gives out or prolongs a lock.
func TestRequireFsyncOfAServerThatCannotTell(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := proxytest.Start(t, server.URL(), proxytest.WithFsync(0, 5*time.Minute))
	plain := proxytest.Dial(t, proxytest.Start(t, server.URL(), nil).Addr)
	c, waiter := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	for _, command := range []string{"LOCK job 300", "LOCK job 300 WAIT 5", "LOCK job 300 SESSION",
		"LOCK job 300 SHARED", "LOCK job 300 OWNER me", "LOCKALL 300 2 job {job}2",
		"LOCKALL 300 2 job {job}2 WAIT 5"} {
		c.Expect(command, untold+"…")
		if got := server.Ask("EXISTS", "job", "{job}2"); got != ":0" {
			t.Errorf("%s: the lock is there: %s", command, got)
		}
	}
	c.Send("LOCK a 300", "LOCK b 300") // a batch
	for range 2 {
		if got := c.Reply(); !strings.HasPrefix(got, untold) ||
			!strings.HasSuffix(got, "), which takes Redis 7.2 or later with appendonly yes: "+
				"the lock was not taken, try again\r\n") {
			t.Errorf("in a batch: %q", got)
		}
	}
	token := plain.Lock("held 300")
	c.Expect("LOCK held 300", "$-1\r\n")
	c.Expect(fmt.Sprintf("RELOCK held %d 300", token), untold+"…")
	waiter.Send("LOCK held 300 WAIT 300")
	proxytest.AwaitWaiters(t, p, "held", 1)
	c.Expect(proxytest.Unlock("held", token), ":1\r\n")
	if got := waiter.Reply(); !strings.HasPrefix(got, untold) {
		t.Errorf("the waiter: %q", got)
	}
	if got := server.Ask("EXISTS", "held"); got != ":0" {
		t.Errorf("the lock was handed over: %s", got)
	}
}

// A token is given only for what the server has on disk.
func TestRequireFsyncLock(t *testing.T) {
	t.Parallel()
	server, p, ok := startSyncing(t, "always", 0)
	if !ok {
		return
	}
	a, b := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	token := a.Lock("job 300 OWNER me")
	a.Expect("LOCK job 300 OWNER me", fmt.Sprintf(":%d\r\n", token))
	a.Expect(fmt.Sprintf("RELOCK job %d 300", token), ":1\r\n")
	b.Expect("LOCK job 300", "$-1\r\n")
	b.Send("LOCK job 300 WAIT 300")
	proxytest.AwaitWaiters(t, p, "job", 1)
	a.Expect(proxytest.Unlock("job", token), ":1\r\n")
	b.Expect(proxytest.Unlock("job", proxytest.Token(t, b.Reply())), ":1\r\n")
	all := proxytest.Token(t, a.Do("LOCKALL 300 2 x y"))
	a.Expect(fmt.Sprintf("UNLOCKALL %d 2 x y", all), ":2\r\n")
	held := a.Lock("held 300")

	// With appendfsync no, the server never says that it is on disk.
	if got := server.Ask("CONFIG", "SET", "appendfsync", "no"); got != "+OK" {
		t.Fatal(got)
	}
	const missing = "-NOREPLICAS the upstream did not have it on disk within 100ms"
	hasty := proxytest.Start(t, server.URL(), proxytest.WithFsync(0, 100*time.Millisecond))
	c, w := proxytest.Dial(t, hasty.Addr), proxytest.Dial(t, hasty.Addr)
	c.Expect("LOCK job 300", missing+": the lock was not taken, try again\r\n")
	c.Expect(fmt.Sprintf("RELOCK held %d 300", held),
		missing+": the new timeout holds on the upstream alone, try again\r\n")
	w.Send("LOCK held 300 WAIT 300")
	proxytest.AwaitWaiters(t, hasty, "held", 1)
	c.Expect(proxytest.Unlock("held", held), ":1\r\n")
	if got := w.Reply(); !strings.HasPrefix(got, missing) {
		t.Errorf("the waiter: %q", got)
	}
	if got := server.Ask("EXISTS", "job", "held"); got != ":0" {
		t.Errorf("locks are left: %s", got)
	}
}

// Only replicas that have it on disk count.
func TestRequireFsyncOfReplicas(t *testing.T) {
	t.Parallel()
	server, p, ok := startSyncing(t, "always", 1)
	if !ok {
		return
	}
	testredis.StartReplicas(t, server, 1)
	two := proxytest.Start(t, server.URL(), proxytest.WithFsync(1, 100*time.Millisecond))
	proxytest.Dial(t, two.Addr).Expect("LOCK job 300", "-NOREPLICAS 0 of 1 replicas had it on "+
		"disk within 100ms: the lock was not taken, try again\r\n")
	testredis.StartReplicas(t, server, 1, "--appendonly", "yes", "--appendfsync", "always")
	proxytest.Dial(t, p.Addr).Lock("job 300")
	server.Ask("CONFIG", "SET", "appendfsync", "no")
	proxytest.Dial(t, two.Addr).Expect("LOCK other 300", "-NOREPLICAS the upstream did not have it "+
		"on disk within 100ms, and …")
}

// A lock whose token was given is there after the server was killed right behind that.
func TestRequireFsyncAcrossAKill(t *testing.T) {
	t.Parallel()
	for _, appendfsync := range []string{"always", "everysec"} {
		server, p, ok := startSyncing(t, appendfsync, 0)
		if !ok {
			return
		}
		c := proxytest.Dial(t, p.Addr)
		tokens := map[string]int64{}
		for i := range 3 {
			key := fmt.Sprint("job", i)
			tokens[key] = c.Lock(key + " 600")
		}
		server.Kill()
		server.Restart()
		after := proxytest.Dial(t, p.Addr)
		for key, token := range tokens {
			after.Expect("LOCK "+key+" 600", "$-1\r\n")
			after.Expect(proxytest.Unlock(key, token), ":1\r\n")
		}
	}
}

// A client that may not WAITAOF is told why it gets no lock.
func TestRequireFsyncWithoutTheRight(t *testing.T) {
	t.Parallel()
	server, p, ok := startSyncing(t, "always", 0)
	if !ok {
		return
	}
	server.Ask("ACL", "SETUSER", "app", "on", ">pw", "~*", "+@all", "-waitaof")
	c := proxytest.Dial(t, p.Addr)
	c.Expect("AUTH app pw", "+OK\r\n")
	c.Expect("LOCK job 300",
		"-NOREPLICAS the upstream does not tell whether it is on disk (NOPERM …")
	if got := server.Ask("EXISTS", "job"); got != ":0" {
		t.Errorf("the lock was left behind: %s", got)
	}
}
