//go:build !race

package virtual_test

import (
	"fmt"
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/virtualtest"
)

func TestSessionLock(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server, p := virtualtest.StartBoth(t)
		direct := proxytest.GoRedis(t, server.Addr())
		c, other := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
		token := c.Lock("job 1 SESSION")
		c.Lock("second 30 SESSION")
		// It is renewed even while its connection is busy.
		c.Send("BLPOP none 2")
		time.Sleep(1800 * time.Millisecond)
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
		if got := other.Reply(); got[0] != ':' ||
			time.Since(start) > 100*time.Millisecond {
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
	})
}

// While the upstream doesn't answer, a session lock is held
// no longer than the upstream would keep it.
func TestSessionLockIsLostWithTheUpstream(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server, p := virtualtest.StartBoth(t)
		c := proxytest.Dial(t, p.Addr)
		c.Do("HELLO 3")
		start := time.Now()
		token := c.Lock("job 0.5 SESSION")
		server.Pause()
		want := fmt.Sprintf(">3\r\n$8\r\nlocklost\r\n$3\r\njob\r\n:%d\r\n", token)
		if got := c.Reply(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if took := time.Since(start); took < 450*time.Millisecond ||
			took > 700*time.Millisecond {
			t.Errorf("lost after %v", took)
		}
		c.Closed()
		server.Resume()
	})
}

func TestKilledClientFreesItsSessionLock(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		_, p := virtualtest.StartBoth(t)
		holder, next := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
		holder.Lock("job 30 SESSION")
		next.Send("LOCK job 30 WAIT 5")
		proxytest.AwaitWaiters(t, p, "job", 1)
		start := time.Now()
		holder.Close()
		if got := next.Reply(); got[0] != ':' ||
			time.Since(start) > 100*time.Millisecond {
			t.Errorf("%q after %v", got, time.Since(start))
		}
	})
}
