package lockproxy_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"lockproxy/internal/testredis"
)

// A session lock whose client closes while Redis stands still, for longer than one try to release it takes, is released as soon as Redis
// goes on.
func TestSessionLockIsReleasedAfterAStall(t *testing.T) {
	server, p := startBoth(t)
	direct := goRedis(t, server.Addr())
	c, other := dial(t, p.addr), dial(t, p.addr)
	c.lock("job 30 SESSION")
	other.do("PING")
	stall := 4500 * time.Millisecond
	direct.Do(ctx, "CLIENT", "PAUSE", stall.Milliseconds(), "WRITE")
	start := time.Now()
	c.Close()
	eventually(t, stall+2*time.Second, "the lock is released", func() bool { return direct.Exists(ctx, "job").Val() == 0 })
	t.Logf("released %v after the client closed", time.Since(start).Round(time.Millisecond))
}

// A lock that may have been taken by a LOCK whose reply was lost is released once the upstream answers, however long that takes.
func TestUnknownLockIsReleasedAfterAStall(t *testing.T) {
	server := testredis.Start(t)
	link := testredis.StartLink(t, server.Addr())
	p := startProxy(t, "redis://"+link.Addr(), nil)
	direct := goRedis(t, server.Addr())
	c := dial(t, p.addr)
	c.lock("warm-1 1") // so that Redis knows the script
	c.do("PING")
	c.lock("warm-2 1") // so that the next one needs no further connection
	link.HoldReplies()
	c.send("LOCK job 30")
	eventually(t, 5*time.Second, "Redis has given the lock", func() bool { return direct.Exists(ctx, "job").Val() == 1 })
	link.Cut()
	if got := c.reply(); got[:9] != "-UPSTREAM" {
		t.Fatalf("LOCK: %q", got)
	}
	link.Hold()
	time.Sleep(3 * time.Second)
	if direct.Exists(ctx, "job").Val() != 1 {
		t.Fatal("the lock was released by way of a link that lets nothing pass")
	}
	link.Release()
	eventually(t, 3*time.Second, "the lock is released", func() bool { return direct.Exists(ctx, "job").Val() == 0 })
}

// A proxy that is told to stop ends in time, though Redis is silent and there are many locks of which it doesn't know whether they were
// taken.
func TestShutdownWithUnknownLocks(t *testing.T) {
	server := testredis.Start(t)
	link := testredis.StartLink(t, server.Addr())
	const timeout = 4 * time.Second
	p := startProcess(t, "--upstream", "redis://"+link.Addr(), "--shutdown-timeout", timeout.String())
	c, twin := dial(t, p.addr), dial(t, p.addr)
	unknown := 0
	for round := range 10 {
		for range 20 { // until the two share a lane: what is lost there costs no client its connection
			c.expect("PING", "+PONG\r\n")
			twin.expect("PING", "+PONG\r\n")
			time.Sleep(5 * time.Millisecond)
		}
		link.Hold()
		var commands []string
		for i := range 60 {
			commands = append(commands, fmt.Sprintf("LOCK job-%d-%d 60", round, i))
		}
		c.send(commands...)
		time.Sleep(50 * time.Millisecond)
		link.Cut()
		link.Release()
		for range commands {
			if c.reply()[0] == '-' {
				unknown++
			}
		}
	}
	if unknown < 100 {
		t.Fatalf("only %d LOCKs have failed", unknown)
	}
	c.expect("LOCK mine 60 SESSION", ":…")
	link.Hold()
	c.Close()
	start := time.Now()
	p.cmd.Process.Signal(syscall.SIGTERM)
	p.ends(t, timeout)
	t.Logf("%d LOCKs of unknown outcome: ended %v after SIGTERM", unknown, time.Since(start).Round(time.Millisecond))
}

// A client is told at once, and its connection closes, when its session lock is released by another client of the same proxy, long before
// the next renewal.
func TestSessionLockTakenAway(t *testing.T) {
	_, p := startBoth(t)
	for _, proto := range []string{"2", "3"} {
		for _, release := range []string{"UNLOCK job FORCE", "UNLOCK job %d"} {
			c, other := dial(t, p.addr), dial(t, p.addr)
			c.do("HELLO " + proto)
			other.do("PING")
			token := c.lock("job 30 SESSION")
			c.lock("second 30 SESSION")
			if release != "UNLOCK job FORCE" {
				release = fmt.Sprintf(release, token)
			}
			start := time.Now()
			other.expect(release, ":1\r\n")
			if proto == "3" {
				want := fmt.Sprintf(">3\r\n$8\r\nlocklost\r\n$3\r\njob\r\n:%d\r\n", token)
				if got := c.reply(); got != want {
					t.Errorf("%s: got %q, want %q", release, got, want)
				}
			}
			c.closed()
			if took := time.Since(start); took > 500*time.Millisecond {
				t.Errorf("%s, RESP%s: closed after %v", release, proto, took)
			}
			other.lock("job 30 WAIT 1")
			other.lock("second 30 WAIT 1") // the other locks of the connection end with it
			other.expect("UNLOCK job", ":1\r\n")
			other.expect("UNLOCK second", ":1\r\n")
		}
	}
}
