//go:build !race

package virtual_test

import (
	"fmt"
	"testing"
	"time"

	"lockproxy/internal/test/badlink"
	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/virtualtest"
	"lockproxy/internal/test/wire"
)

// The client of a session lock closes while Redis hangs, for longer than one attempt to
// release it: the lock is released as soon as Redis continues.
func TestSessionLockIsReleasedAfterAStall(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server, p := virtualtest.StartBoth(t)
		direct := proxytest.GoRedis(t, server.Addr())
		c, other := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
		c.Lock("job 30 SESSION")
		other.Do("PING")
		stall := 4500 * time.Millisecond
		direct.Do(proxytest.Ctx, "CLIENT", "PAUSE", stall.Milliseconds(), "WRITE")
		start := time.Now()
		c.Close()
		testwait.Until(t, "the lock is released", func() bool {
			return direct.Exists(proxytest.Ctx, "job").Val() == 0
		})
		t.Logf("released %v after the client closed", time.Since(start).Round(time.Millisecond))
	})
}

// A client is told at once, and its connection closes, when another client of the same proxy
// releases its session lock, long before the next renewal.
func TestSessionLockTakenAway(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		_, p := virtualtest.StartBoth(t)
		for _, proto := range []string{"2", "3"} {
			for _, release := range []string{"UNLOCK job FORCE", "UNLOCK job %d"} {
				c, other := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
				c.Do("HELLO " + proto)
				other.Do("PING")
				token := c.Lock("job 30 SESSION")
				c.Lock("second 30 SESSION")
				if release != "UNLOCK job FORCE" {
					release = fmt.Sprintf(release, token)
				}
				start := time.Now()
				other.Expect(release, ":1\r\n")
				if proto == "3" {
					want := fmt.Sprintf(">3\r\n$8\r\nlocklost\r\n$3\r\njob\r\n:%d\r\n", token)
					if got := c.Reply(); got != want {
						t.Errorf("%s: got %q, want %q", release, got, want)
					}
				}
				c.Closed()
				if took := time.Since(start); took > 500*time.Millisecond {
					t.Errorf("%s, RESP%s: closed after %v", release, proto, took)
				}
				other.Lock("job 30 WAIT 1")
				other.Lock("second 30 WAIT 1") // the other locks of the connection end with it
				other.Expect("UNLOCK job", ":1\r\n")
				other.Expect("UNLOCK second", ":1\r\n")
			}
		}
	})
}

// A lock that two connections of one owner have is released: each that has it by SESSION is told at
// once, whichever was given it last.
func TestOwnersSessionsAreTold(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		_, p := virtualtest.StartBoth(t)
		for _, how := range []string{"", " SESSION"} {
			for _, by := range []string{"FORCE", "token", "holder"} {
				first, gone := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
				last, other := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
				token := first.Lock("job 30 SESSION OWNER me")
				gone.Lock("job 30 SESSION OWNER me")
				if again := last.Lock("job 30" + how + " OWNER me"); again != token {
					t.Fatalf("the owner was given %d, then %d", token, again)
				}
				gone.Close()
				testwait.Until(t, "the end of a connection", func() bool {
					return p.Server.Stats().Clients == 3
				})
				start := time.Now()
				switch by {
				case "FORCE":
					other.Expect("UNLOCK job FORCE", ":1\r\n")
				case "token":
					other.Expect(proxytest.Unlock("job", token), ":1\r\n")
				default:
					last.Expect("UNLOCK job", ":1\r\n")
				}
				first.Closed()
				if how != "" && by != "holder" {
					last.Closed()
				} else {
					last.Expect("ECHO here", wire.Bulk("here"))
				}
				if took := time.Since(start); took > 500*time.Millisecond {
					t.Errorf("%q, released by %s: closed after %v", how, by, took)
				}
				for _, c := range []*proxytest.Conn{first, last, other} {
					c.Close()
				}
				testwait.Until(t, "the end of all connections", func() bool {
					return p.Server.Stats().Clients == 0
				})
			}
		}
	})
}

// A lock that can have been taken by a LOCK whose reply was lost is released once the upstream
// answers, however long that takes.
func TestUnknownLockIsReleasedAfterAStall(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server := virtualtest.StartStore(t)
		link := proxytest.LinkTo(t, server)
		p := proxytest.Start(t, "redis://"+link.Addr(), nil)
		direct := proxytest.GoRedis(t, server.Addr())
		c := proxytest.Dial(t, p.Addr)
		c.Lock("warm-1 1") // so that Redis knows the script
		c.Do("PING")
		c.Lock("warm-2 1") // so that the next one needs no further connection
		link.Set(badlink.State{HoldDn: true})
		c.Send("LOCK job 300")
		testwait.Until(t, "Redis has given the lock", func() bool {
			return direct.Exists(proxytest.Ctx, "job").Val() == 1
		})
		link.Reset()
		if got := c.Reply(); got[:9] != "-UPSTREAM" {
			t.Fatalf("LOCK: %q", got)
		}
		link.Set(badlink.State{HoldUp: true, HoldDn: true})
		time.Sleep(3 * time.Second)
		if direct.Exists(proxytest.Ctx, "job").Val() != 1 {
			t.Fatal("the lock was released through a link that lets nothing pass")
		}
		link.Set(badlink.State{})
		testwait.Until(t, "the lock is released", func() bool {
			return direct.Exists(proxytest.Ctx, "job").Val() == 0
		})
	})
}
