package lockproxy_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"lockproxy/lockcmd"
	"lockproxy/proxy"
)

// With --takeover-guard a lock that has expired is nobody else's for a while; what is written at its key is the same.
func TestTakeoverGuard(t *testing.T) {
	const timeout, guard = 300 * time.Millisecond, 600 * time.Millisecond
	redis, first := startBoth(t)
	p := startProxy(t, redis.URL(), func(cfg *proxy.Config) { cfg.Locks.Durability = lockcmd.Durability{TakeoverGuard: guard} })
	a, b := dial(t, p.addr), dial(t, p.addr)
	millis := func(command ...string) int64 {
		t.Helper()
		n, err := strconv.ParseInt(strings.TrimPrefix(redis.Ask(command...), ":"), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}

	token := a.lock("job 0.3")
	began := time.Now()
	if ttl := millis("PTTL", "job"); ttl <= timeout.Milliseconds() || ttl > (timeout+guard).Milliseconds() {
		t.Errorf("the key lives for %d ms", ttl)
	}
	if left := millis("GET", "job") - time.Now().UnixMilli(); left > timeout.Milliseconds() {
		t.Errorf("the timestamp is %d ms ahead", left)
	}
	time.Sleep(time.Until(began.Add(timeout + 30*time.Millisecond)))
	b.expect("LOCK job 30", "$-1\r\n")
	if got := b.do("LOCKINFO job"); !strings.Contains(got, "expired") || !strings.Contains(got, fmt.Sprintf(":%d\r\n", token)) {
		t.Errorf("LOCKINFO: %q", got)
	}
	// Nobody else has had it: it still is its holder's.
	a.expect(fmt.Sprintf("FENCE job %d SET x 1", token), "+OK\r\n")
	a.expect(fmt.Sprintf("RELOCK job %d 0.3", token), ":1\r\n")
	began = time.Now()
	if next := b.lock("job 0.3 WAIT 5"); next <= token {
		t.Errorf("token %d behind %d", next, token)
	}
	if took := time.Since(began); took < timeout+guard-10*time.Millisecond || took > timeout+guard+100*time.Millisecond {
		t.Errorf("taken over after %v, want %v", took, timeout+guard)
	}
	a.expect(unlock("job", token), ":0\r\n")

	// Released is released, and handed on at once.
	began = time.Now()
	held := a.lock("free 30")
	b.send("LOCK free 0.3 WAIT 5")
	attackWaits(t, p, "free", 1)
	a.expect(unlock("free", held), ":1\r\n")
	handed := attackToken(t, b.reply())
	if took := time.Since(began); took > 300*time.Millisecond {
		t.Errorf("handed on after %v", took)
	}
	time.Sleep(timeout + 30*time.Millisecond)
	a.expect("LOCK free 30", "$-1\r\n") // the one who was handed it is guarded too
	b.expect(unlock("free", handed), ":1\r\n")
	a.lock("free 30")

	// A plain client's timestamp is left alone for as long.
	began = time.Now()
	a.expect(fmt.Sprintf("SET plain %d", began.UnixMilli()), "+OK\r\n")
	a.expect("LOCK plain 30", "$-1\r\n")
	a.lock("plain 30 WAIT 5")
	if took := time.Since(began); took < guard-10*time.Millisecond || took > guard+150*time.Millisecond {
		t.Errorf("taken over from a plain client after %v, want %v", took, guard)
	}

	// A proxy without the guard sees by the key's TTL that the lock isn't to be taken over yet.
	c := dial(t, first.addr)
	a.lock("other 0.3")
	began = time.Now()
	time.Sleep(timeout + 30*time.Millisecond)
	c.expect("LOCK other 30", "$-1\r\n")
	c.lock("other 30 WAIT 5")
	if took := time.Since(began); took < timeout+guard-30*time.Millisecond || took > timeout+guard+150*time.Millisecond {
		t.Errorf("taken over by a proxy without the guard after %v, want %v", took, timeout+guard)
	}
}

// With the guard, hand-overs and reservations go on as without.
func TestTakeoverGuardUnderContention(t *testing.T) {
	redis, _ := startBoth(t)
	guarded := func(cfg *proxy.Config) { cfg.Locks.Durability = lockcmd.Durability{TakeoverGuard: 5 * time.Second} }
	one, two := startProxy(t, redis.URL(), guarded), startProxy(t, redis.URL(), guarded)
	counts, longest, _ := fight(t, 1500*time.Millisecond, 10, func(i int) string { return []string{one.addr, two.addr}[i%2] })
	sum, ratio := fairness(counts)
	t.Logf("%d acquisitions, fewest/most %.2f, longest wait %v", sum, ratio, longest)
	if sum < 100 || longest > time.Second || ratio < 0.2 {
		t.Errorf("counts %v", counts)
	}
}
