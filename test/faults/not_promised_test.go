//go:build faults

package faults_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/faults/check"
	"lockproxy/internal/faults/client"
	"lockproxy/internal/faults/history"
	processes "lockproxy/internal/faults/process"
	"lockproxy/internal/faults/relay"
	"lockproxy/internal/proxytest"
	"lockproxy/internal/testwait"
)

// witness is a service and what single clients saw of it, for
// histories that show what is not promised.
type witness struct {
	t       *testing.T
	redis   *processes.Redis
	relay   *relay.Relay // from proxy 0 to redis
	proxies [2]*processes.Proxy
	notes   *history.Recorder
	faults  []history.Fault
	clients int
}

func newWitness(t *testing.T, persistence processes.Persistence, flags ...string) *witness {
	t.Helper()
	w := &witness{t: t, notes: &history.Recorder{}}
	path := builtPrograms(t).Proxy
	var err error
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	w.redis, err = processes.StartRedis(proxytest.Ctx, t.TempDir(), persistence, true)
	must(err)
	t.Cleanup(w.redis.Kill)
	w.relay, err = relay.New(w.redis.Addr, 1)
	must(err)
	t.Cleanup(w.relay.Close)
	for i, upstream := range []string{w.relay.Addr(), w.redis.Addr} {
		w.proxies[i], err = processes.StartProxy(proxytest.Ctx, path, upstream, flags...)
		must(err)
		t.Cleanup(w.proxies[i].Kill)
	}
	return w
}

// dial returns a new client of a proxy.
func (w *witness) dial(proxy int) *witnessClient {
	w.t.Helper()
	c, err := client.Dial(w.proxies[proxy].Addr)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(c.Close)
	w.clients++
	return &witnessClient{w: w, Conn: c, id: w.clients, proxy: proxy}
}

type witnessClient struct {
	*client.Conn
	w     *witness
	id    int
	proxy int
}

// lock takes a lock with a timeout in seconds and LOCK's
// options, and returns its token, 0 if it is refused.
func (c *witnessClient) lock(key string, timeout float64, more ...string) int64 {
	c.w.t.Helper()
	args := append([]string{"LOCK", key, strconv.FormatFloat(timeout, 'f', 3, 64)}, more...)
	o := history.Op{Client: c.id, Proxy: c.proxy, Kind: history.Lock, Key: key,
		Timeout: int64(timeout * 1e9), Session: strings.Contains(strings.Join(more, " "),
			"SESSION"),
		Wait: strings.Contains(strings.Join(more, " "), "WAIT")}
	return client.Ask(c.w.notes, c.Conn, o, 20*time.Second, args...).Result
}

func (c *witnessClient) unlock(key string, token int64) int64 {
	o := history.Op{Client: c.id, Proxy: c.proxy, Kind: history.Unlock, Key: key, Token: token}
	return client.Ask(c.w.notes, c.Conn, o, 0, "UNLOCK", key, fmt.Sprint(token)).Result
}

// fault records what do does.
func (w *witness) fault(breaks history.Breaks, do func() error) {
	w.t.Helper()
	from := history.Now()
	if err := do(); err != nil {
		w.t.Fatal(err)
	}
	w.faults = append(w.faults, history.Fault{Kind: w.t.Name(), From: from, To: history.Now(),
		Breaks: breaks})
}

// shows fails unless the history breaks exactly these rules,
// and none once the fault is taken into account.
func (w *witness) shows(rules ...string) {
	w.t.Helper()
	h := history.History{Ops: w.notes.Drain()}
	found := map[string]bool{}
	for _, v := range check.Check(h, check.DefaultBounds()).Violations {
		found[v.Rule] = true
	}
	for _, rule := range rules {
		if !found[rule] {
			w.t.Errorf("the history does not break %q: docs/guarantees.md is wrong", rule)
		}
		delete(found, rule)
	}
	delete(found, "fence") // it reports the same
	if len(found) > 0 {
		w.t.Errorf("the history also breaks %v", found)
	}
	h.Faults = w.faults
	for _, v := range check.Check(h, check.DefaultBounds()).Violations {
		w.t.Errorf("although the fault excuses it: %v", v)
	}
}

func (w *witness) direct(args ...string) error {
	c, err := client.Dial(w.redis.Addr)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Do(5*time.Second, args...)
	return err
}

// FLUSHALL takes locks away from their holders. Tokens rise nevertheless.
func TestNotPromisedExclusionAcrossFlushAll(t *testing.T) {
	w := newWitness(t, processes.None)
	a, b := w.dial(0), w.dial(1)
	first := a.lock("job", 30)
	w.fault(history.Breaks{Leases: true, Writes: true}, func() error {
		return w.direct("FLUSHALL")
	})
	if second := b.lock("job", 30); second <= first {
		t.Errorf("token %d after %d", second, first)
	}
	time.Sleep(20 * time.Millisecond)
	a.unlock("job", first)
	w.shows("exclusion", "lost")
}

// A Redis without persistence forgets its locks in a restart. Tokens rise nevertheless.
func TestNotPromisedExclusionAcrossRestartWithoutPersistence(t *testing.T) {
	lossOfPower(t, processes.None, 0)
}

// A Redis that syncs once a second can lose the locks of the last second with its machine's power.
func TestNotPromisedExclusionAcrossPowerCutWithEverysec(t *testing.T) {
	lossOfPower(t, processes.Everysec, 0)
}

// A Redis that leaves syncing to the kernel can lose more than that.
func TestNotPromisedExclusionAcrossPowerCutWithAppendfsyncNo(t *testing.T) {
	lossOfPower(t, processes.Never, 1500*time.Millisecond)
}

func lossOfPower(t *testing.T, persistence processes.Persistence, before time.Duration) {
	w := newWitness(t, persistence)
	a := w.dial(0)
	a.Do(time.Second, "PING")
	w.redis.Watch() // what will be on the disk
	first := a.lock("job", 30)
	time.Sleep(before)
	w.fault(history.Breaks{Leases: true, Writes: true}, func() error {
		if err := w.redis.PowerCut(10 * time.Second); err != nil {
			return err
		}
		return w.redis.Start(proxytest.Ctx, persistence)
	})
	if second := w.dial(1).lock("job", 30); second <= first {
		t.Errorf("token %d after %d", second, first)
	}
	w.shows("exclusion")
}

// With appendfsync always the same history keeps the lock.
func TestPromisedExclusionAcrossPowerCutWithAlways(t *testing.T) {
	w := newWitness(t, processes.Always)
	first := w.dial(0).lock("job", 30)
	w.redis.Watch()
	w.fault(history.Breaks{}, func() error {
		if err := w.redis.PowerCut(10 * time.Second); err != nil {
			return err
		}
		return w.redis.Start(proxytest.Ctx, processes.Always)
	})
	b := w.dial(1)
	if second := b.lock("job", 30); second != 0 {
		t.Errorf("a second holder with token %d", second)
	}
	if b.unlock("job", first) != 1 {
		t.Error("the first holder's token is forgotten")
	}
}

// When Redis's clock steps forward, leases end by it that have not ended by their holders' clocks.
func TestNotPromisedExclusionAcrossClockStepForward(t *testing.T) {
	w := newWitness(t, processes.None)
	a, b := w.dial(0), w.dial(1)
	first := a.lock("job", 30)
	w.fault(history.Breaks{Leases: true}, func() error { return w.redis.SetClock(time.Minute) })
	if second := b.lock("job", 30); second <= first {
		t.Errorf("token %d after %d", second, first)
	}
	w.shows("exclusion")
}

// When Redis's clock steps back, leases last longer and tokens rise.
func TestPromisedExclusionAndTokensAcrossClockStepBack(t *testing.T) {
	w := newWitness(t, processes.None)
	a, b := w.dial(0), w.dial(1)
	first := a.lock("job", 30)
	w.fault(history.Breaks{}, func() error { return w.redis.SetClock(-time.Minute) })
	if second := b.lock("job", 30); second != 0 {
		t.Errorf("a second holder with token %d", second)
	}
	if a.unlock("job", first) != 1 {
		t.Error("the holder can't release")
	}
	if second := b.lock("job", 30); second <= first {
		t.Errorf("token %d after %d", second, first)
	}
}

// A lock was free for longer than --fence-retention, and then
// Redis's clock steps back: tokens go back.
func TestNotPromisedTokensAcrossClockStepBackAfterRetention(t *testing.T) {
	w := newWitness(t, processes.None, "--fence-retention", "1s")
	a := w.dial(0)
	a.unlock("job", a.lock("job", 1))
	time.Sleep(2100 * time.Millisecond)
	w.fault(history.Breaks{Tokens: true}, func() error { return w.redis.SetClock(-time.Minute) })
	a.lock("job", 1)
	w.shows("tokens")
}

// The holder of a session lock isn't told of its loss while its proxy is paused: only the holder's
// clock can show it.
func TestNotPromisedNoticeByPausedProxy(t *testing.T) {
	w := newWitness(t, processes.None)
	a, b := w.dial(0), w.dial(1)
	first := a.lock("job", 1, "SESSION")
	var second int64
	w.fault(history.Breaks{Notices: true}, func() error {
		w.proxies[0].Pause()
		second = b.lock("job", 5, "WAIT", "10")
		time.Sleep(2 * time.Second)
		return nil
	})
	w.proxies[0].Resume()
	a.unlock("job", first)
	if second == 0 {
		t.Fatal("no other client gets the lock")
	}
	w.shows("exclusion")
}

// A proxy gets a lock for a waiter and dies before it says so: the lock stays until its timeout.
func TestNotPromisedLockOfKilledProxy(t *testing.T) {
	w := newWitness(t, processes.None)
	a, b := w.dial(0), w.dial(1)
	a.unlock("job", a.lock("job", 1))     // from now on redis knows the script by its hash
	w.relay.Set(relay.Link{HoldDn: true}) // redis's answer doesn't come
	a.Send("LOCK", "job", "600")
	left := func() int64 { // milliseconds, negative if the lock is free
		reply, err := b.Do(testwait.Patience, "PTTL", "job")
		if err != nil {
			t.Fatal(err)
		}
		return reply.Int
	}
	testwait.Until(t, "Redis has given the lock", func() bool { return left() > 0 })
	w.proxies[0].Kill()
	if token := b.lock("job", 1, "WAIT", "0.5"); token != 0 {
		t.Errorf("another client has the lock: %d", token)
	}
	if ms := left(); ms <= 0 || ms > 600_000 {
		t.Errorf("the lock expires in %d ms, want at most 600 s", ms)
	}
}

// Changes of data on a link between a proxy and Redis are believed.
func TestNotPromisedAnswersOverCorruptedUpstreamLink(t *testing.T) {
	w := newWitness(t, processes.None)
	w.relay.Set(relay.Link{Corrupt: 0.01})
	text := strings.Repeat("x", 200)
	for range 50 {
		c := w.dial(0)
		if r, err := c.Do(2*time.Second, "ECHO", text); err == nil && !r.Error() && r.Text != text {
			return
		}
	}
	t.Error("no wrong answer came: docs/guarantees.md is wrong")
}

// resetByTheMiddle takes a lock over a link that the middle
// resets a while after its token has been read.
func resetByTheMiddle(w *witness, key string, after time.Duration) (token int64) {
	w.t.Helper()
	link, err := relay.New(w.proxies[0].Addr, 2)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(link.Close)
	c, err := client.Dial(link.Addr())
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(c.Close)
	w.clients++
	token = (&witnessClient{w: w, Conn: c, id: w.clients}).lock(key, 30)
	time.Sleep(after)
	w.fault(history.Breaks{}, func() error { link.Cut(); return nil })
	return token
}

// A lock whose holder's connection is reset just after its token is released, although the holder
// has read the token: the reset seems to have crossed with it. Here the holder's machine sends the
// reset; the proxy sees the same.
func TestNotPromisedLeaseAcrossResetAtOnce(t *testing.T) {
	w := newWitness(t, processes.None)
	b := w.dial(1)
	for i := range 40 { // on a busy machine the proxy can see it late
		key := fmt.Sprint("job", i)
		a := w.dial(0)
		a.lock(key, 30)
		w.fault(history.Breaks{Leases: true}, func() error { a.Reset(); return nil })
		if b.lock(key, 30, "WAIT", "0.3") != 0 {
			w.shows("exclusion")
			return
		}
	}
	t.Error("no lock has been released: docs/guarantees.md is wrong")
}

// When a connection is reset later, as balancers do to idle
// ones, its holder keeps its lock and can release it.
func TestPromisedLeaseAcrossReset(t *testing.T) {
	w := newWitness(t, processes.None)
	first := resetByTheMiddle(w, "job", 300*time.Millisecond)
	if second := w.dial(1).lock("job", 30, "WAIT", "1"); second != 0 {
		t.Errorf("a second holder with token %d", second)
	}
	if w.dial(0).unlock("job", first) != 1 {
		t.Error("the holder can't release with its token")
	}
}
