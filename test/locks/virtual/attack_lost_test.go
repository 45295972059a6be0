//go:build !race

package virtual_test

import (
	"strings"
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/virtualtest"
	"lockproxy/proxy"
)

// A waiter's time ends even while the release that can be for
// it hangs; the release then finds that it has left.
func TestAttackHangingRelease(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		// What hangs is one connection, so it must be the releaser's alone.
		_, relay, p := attackWith(t, func(cfg *proxy.Config) { cfg.Dedicated = true })
		holder, next, other := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr),
			proxytest.Dial(t, p.Addr)
		other.Do("PING")
		holder.Lock("job 30")
		next.Send("LOCK job 30 WAIT 0.3")
		proxytest.AwaitWaiters(t, p, "job", 1)
		rule, release := relay.hold(t, true, "connection ")
		holder.Send("UNLOCK job")
		<-rule.met
		if got, err := next.TryReply(); got != "$-1\r\n" {
			t.Errorf("%q, %v", got, err)
		}
		release()
		if got := holder.Reply(); got != ":1\r\n" {
			t.Errorf("UNLOCK: %q", got)
		}
		other.Lock("job 30 WAIT 1")
	})
}

// The reply to a release is lost, and with it whether the
// waiter was given the lock; then its time has expired.
func TestAttackLostHandOver(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		_, relay, p := attackBoth(t)
		for _, hangUp := range []bool{false, true} {
			holder, next, other := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr),
				proxytest.Dial(t, p.Addr)
			holder.Lock("job 30")
			other.Do("PING")
			if hangUp { // the token can have reached it by then: that of a session ends with it
				next.Send("LOCK job 30 WAIT 0.4 SESSION")
			} else {
				next.Send("LOCK job 30 WAIT 0.4")
			}
			proxytest.AwaitWaiters(t, p, "job", 1)
			rule := &attackRule{text: "connection ", cut: true, met: make(chan struct{}),
				over: make(chan struct{})}
			time.Sleep(300 * time.Millisecond)
			relay.add(rule)
			holder.Send("UNLOCK job")
			<-rule.met
			relay.mu.Lock()
			relay.rules = nil
			relay.mu.Unlock()
			if hangUp {
				next.Close()
			} else if got := next.Reply(); got[0] == ':' {
				next.Expect("UNLOCK job", ":1\r\n")
			}
			if got := other.Do("LOCK job 30 WAIT 1"); got[0] != ':' {
				t.Errorf("hang-up %v: the lock is held by no client: %q", hangUp, got)
			}
			other.Expect("UNLOCK job", ":1\r\n")
		}
	})
}

// The reply to a LOCK is lost with the upstream connection: no client will ever know the token. An
// earlier lock of this connection stays.
func TestAttackLostToken(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		_, relay, p := attackBoth(t)
		for _, command := range []string{"LOCK job 3600", "LOCK job 3600 SESSION",
			"LOCK job 3600 WAIT 5"} {
			c, other := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
			other.Do("PING")
			token := c.Lock("mine 30")
			for _, key := range []string{"job", "mine"} {
				if key == "mine" {
					c = proxytest.Dial(t, p.Addr)
					token = c.Lock("mine 30 WAIT 1")
				}
				rule := &attackRule{text: "3600000 ", cut: true, met: make(chan struct{}),
					over: make(chan struct{})}
				relay.add(rule)
				c.Expect(strings.Replace(command, "job", key, 1), "-UPSTREAM …")
				relay.mu.Lock()
				relay.rules = nil
				relay.mu.Unlock()
				if key == "job" {
					other.Lock("job 30 WAIT 1")
					other.Expect("UNLOCK job", ":1\r\n")
					other.Expect(proxytest.Unlock("mine", token), ":1\r\n")
				} else {
					time.Sleep(50 * time.Millisecond)
					other.Expect(proxytest.Unlock("mine", token), ":1\r\n")
				}
			}
		}
	})
}

// A waiter polls while a release gives it the lock, and the poll takes so long that the granted
// lock has expired when it runs: the waiter is told the token of the lock that it holds.
func TestAttackPollAfterExpiredGrant(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		_, relay, p := attackWith(t, func(cfg *proxy.Config) { cfg.Dedicated = true })
		holder, next := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
		holder.Lock("job 30")
		next.Send("LOCK job 0.5 WAIT 10")
		proxytest.AwaitWaiters(t, p, "job", 1)
		rule, release := relay.hold(t, true, " first ")
		<-rule.met
		holder.Expect("UNLOCK job", ":1\r\n")
		time.Sleep(600 * time.Millisecond)
		release()
		token := proxytest.Token(t, next.Reply())
		next.Expect(proxytest.Unlock("job", token), ":1\r\n")
	})
}
