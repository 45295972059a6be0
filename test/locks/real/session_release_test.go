package real_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
)

// A proxy that is told to stop ends in time, even if Redis is
// silent and the outcome of many LOCKs is unknown.
func TestShutdownWithUnknownLocks(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	link := testredis.StartLink(t, server.Addr())
	const timeout = 4 * time.Second
	p := proxytest.StartProcess(t, "--upstream", "redis://"+link.Addr(), "--shutdown-timeout",
		timeout.String())
	unknown := 0
	for round := 0; unknown < 100; round++ {
		if round == 100 {
			t.Fatalf("only %d LOCKs have failed", unknown)
		}
		c, twin := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
		for range 20 { // they share a lane, mostly: a loss there costs no client its connection
			c.Do("PING")
			twin.Do("PING")
		}
		link.Hold()
		var commands []string
		for i := range 60 {
			commands = append(commands, fmt.Sprintf("LOCK job-%d-%d 300", round, i))
		}
		c.Send(commands...)
		testwait.Until(t, "they are on their way", link.Holding)
		link.Cut()
		link.Release()
		for i := range commands {
			got, err := c.TryReply()
			if err != nil {
				unknown += len(commands) - i
				break
			}
			if got[0] == '-' {
				unknown++
			}
		}
		c.Close()
		twin.Close()
	}
	c := proxytest.Dial(t, p.Addr)
	testwait.Until(t, "the last loss has been reported", func() bool {
		return c.Do("PING") == "+PONG\r\n"
	})
	c.Expect("LOCK mine 300 SESSION", ":…")
	link.Hold()
	c.Close()
	p.Cmd.Process.Signal(syscall.SIGTERM)
	p.Ends(t)
}
