package locks_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"lockproxy/internal/proxytest"
	"lockproxy/internal/testredis"
	"lockproxy/internal/testwait"
)

// A lock that can have been taken by a LOCK whose reply was lost is released once the upstream
// answers, however long that takes.
func TestUnknownLockIsReleasedAfterAStall(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	link := testredis.StartLink(t, server.Addr())
	p := proxytest.Start(t, "redis://"+link.Addr(), nil)
	direct := proxytest.GoRedis(t, server.Addr())
	c := proxytest.Dial(t, p.Addr)
	c.Lock("warm-1 1") // so that Redis knows the script
	c.Do("PING")
	c.Lock("warm-2 1") // so that the next one needs no further connection
	link.HoldReplies()
	c.Send("LOCK job 300")
	testwait.Until(t, "Redis has given the lock", func() bool {
		return direct.Exists(proxytest.Ctx, "job").Val() == 1
	})
	link.Cut()
	if got := c.Reply(); got[:9] != "-UPSTREAM" {
		t.Fatalf("LOCK: %q", got)
	}
	link.Hold()
	time.Sleep(3 * time.Second)
	if direct.Exists(proxytest.Ctx, "job").Val() != 1 {
		t.Fatal("the lock was released through a link that lets nothing pass")
	}
	link.Release()
	testwait.Until(t, "the lock is released", func() bool {
		return direct.Exists(proxytest.Ctx, "job").Val() == 0
	})
}

// A proxy that is told to stop ends in time, even if Redis is
// silent and the outcome of many LOCKs is unknown.
func TestShutdownWithUnknownLocks(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	link := testredis.StartLink(t, server.Addr())
	const timeout = 4 * time.Second
	p := proxytest.StartProcess(t, "--upstream", "redis://"+link.Addr(), "--shutdown-timeout",
		timeout.String())
	c, twin := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	unknown := 0
	for round := range 10 {
		// Until the two share a lane: a loss there costs no client its connection. A PING may be
		// told of the last loss.
		for range 20 {
			c.Do("PING")
			twin.Do("PING")
			time.Sleep(5 * time.Millisecond)
		}
		link.Hold()
		var commands []string
		for i := range 60 {
			commands = append(commands, fmt.Sprintf("LOCK job-%d-%d 60", round, i))
		}
		c.Send(commands...)
		time.Sleep(50 * time.Millisecond)
		link.Cut()
		link.Release()
		for range commands {
			if c.Reply()[0] == '-' {
				unknown++
			}
		}
	}
	if unknown < 100 {
		t.Fatalf("only %d LOCKs have failed", unknown)
	}
	testwait.Until(t, "the last loss has been reported", func() bool {
		return c.Do("PING") == "+PONG\r\n"
	})
	c.Expect("LOCK mine 60 SESSION", ":…")
	link.Hold()
	c.Close()
	start := time.Now()
	p.Cmd.Process.Signal(syscall.SIGTERM)
	p.Ends(t)
	t.Logf("%d LOCKs of unknown outcome: ended %v after SIGTERM", unknown,
		time.Since(start).Round(time.Millisecond))
}
