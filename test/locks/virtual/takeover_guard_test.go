//go:build !race

package virtual_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/virtualtest"
	"lockproxy/lockcmd"
	"lockproxy/proxy"
)

// With --takeover-guard no other client takes an expired lock for a while; what is written at its
// key is the same.
func TestTakeoverGuard(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		const timeout, guard = 300 * time.Millisecond, 600 * time.Millisecond
		redis, first := virtualtest.StartBoth(t)
		p := proxytest.Start(t, redis.URL(), func(cfg *proxy.Config) {
			cfg.Locks.Durability = lockcmd.Durability{TakeoverGuard: guard}
		})
		a, b := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
		millis := func(command ...string) int64 {
			t.Helper()
			n, err := strconv.ParseInt(strings.TrimPrefix(redis.Ask(command...), ":"), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}

		token := a.Lock("job 0.3")
		began := time.Now()
		if ttl := millis("PTTL", "job"); ttl <= timeout.Milliseconds() ||
			ttl > (timeout+guard).Milliseconds() {
			t.Errorf("the key lives for %d ms", ttl)
		}
		if left := millis("GET", "job") - time.Now().UnixMilli(); left > timeout.Milliseconds() {
			t.Errorf("the timestamp is %d ms ahead", left)
		}
		time.Sleep(time.Until(began.Add(timeout + 30*time.Millisecond)))
		b.Expect("LOCK job 30", "$-1\r\n")
		if got := b.Do("LOCKINFO job"); !strings.Contains(got, "expired") ||
			!strings.Contains(got, fmt.Sprintf(":%d\r\n", token)) {
			t.Errorf("LOCKINFO: %q", got)
		}
		// No other client has had it: it is still its holder's.
		a.Expect(fmt.Sprintf("FENCE job %d SET x 1", token), "+OK\r\n")
		a.Expect(fmt.Sprintf("RELOCK job %d 0.3", token), ":1\r\n")
		began = time.Now()
		if next := b.Lock("job 0.3 WAIT 5"); next <= token {
			t.Errorf("token %d after %d", next, token)
		}
		if took := time.Since(began); took < timeout+guard-10*time.Millisecond ||
			took > timeout+guard+100*time.Millisecond {
			t.Errorf("taken over after %v, want %v", took, timeout+guard)
		}
		a.Expect(proxytest.Unlock("job", token), ":0\r\n")

		// An UNLOCK hands the lock over at once.
		began = time.Now()
		held := a.Lock("free 30")
		b.Send("LOCK free 0.3 WAIT 5")
		proxytest.AwaitWaiters(t, p, "free", 1)
		a.Expect(proxytest.Unlock("free", held), ":1\r\n")
		handed := proxytest.Token(t, b.Reply())
		if took := time.Since(began); took > 300*time.Millisecond {
			t.Errorf("handed over after %v", took)
		}
		time.Sleep(timeout + 30*time.Millisecond)
		a.Expect("LOCK free 30", "$-1\r\n") // the client that got it by the hand-over is guarded too
		b.Expect(proxytest.Unlock("free", handed), ":1\r\n")
		a.Lock("free 30")

		// A foreign client's timestamp is left alone for as long.
		began = time.Now()
		a.Expect(fmt.Sprintf("SET foreign %d", began.UnixMilli()), "+OK\r\n")
		a.Expect("LOCK foreign 30", "$-1\r\n")
		a.Lock("foreign 30 WAIT 5")
		if took := time.Since(began); took < guard-10*time.Millisecond ||
			took > guard+150*time.Millisecond {
			t.Errorf("taken over from a foreign client after %v, want %v", took, guard)
		}

		// A proxy without the guard sees by the key's TTL that it can't take the lock over yet.
		c := proxytest.Dial(t, first.Addr)
		a.Lock("other 0.3")
		began = time.Now()
		time.Sleep(timeout + 30*time.Millisecond)
		c.Expect("LOCK other 30", "$-1\r\n")
		c.Lock("other 30 WAIT 5")
		if took := time.Since(began); took < timeout+guard-30*time.Millisecond ||
			took > timeout+guard+150*time.Millisecond {
			t.Errorf("taken over by a proxy without the guard after %v, want %v", took, timeout+guard)
		}
	})
}
