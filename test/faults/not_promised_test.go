//go:build faults

package faults_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/test/badlink"
	"lockproxy/internal/test/faults/check"
	"lockproxy/internal/test/faults/history"
	processes "lockproxy/internal/test/faults/process"
	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testwait"
)

// FLUSHALL takes locks away from their holders. Tokens rise nevertheless.
func TestNotPromisedExclusionAcrossFlushAll(t *testing.T) {
	w := newWitness(t, processes.None)
	a, b := w.dial(0), w.dial(1)
	first := a.lock("job", 600)
	w.fault(history.Breaks{Leases: true, Writes: true}, func() error {
		_, err := w.direct("FLUSHALL")
		return err
	})
	if second := b.lock("job", 600); second <= first {
		t.Errorf("token %d after %d", second, first)
	}
	outlast(t, check.DefaultBounds().Lease)
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
	lossOfPower(t, processes.Never, time.Second)
}

// lossOfPower cuts the power when a lock is older than that. With Everysec it tries again: if the
// machine has stopped for a second since the lock was taken, the disk has it.
func lossOfPower(t *testing.T, persistence processes.Persistence, old time.Duration) {
	w := newWitness(t, persistence)
	tries := map[processes.Persistence]int{processes.Everysec: 20}[persistence]
	for i := range max(tries, 1) {
		key := fmt.Sprint("job", i)
		a := w.served(0)
		w.redis.Watch() // what will be on the disk
		first := a.lock(key, 600)
		outlast(t, old)
		w.powerCut(history.Breaks{Leases: true, Writes: true}, persistence)
		switch second := w.served(1).lock(key, 600); {
		case second > first:
			w.shows("exclusion")
			return
		case second != 0:
			t.Fatalf("token %d after %d", second, first)
		}
	}
	t.Error("no lock is lost: docs/guarantees.md is wrong")
}

// powerCut takes the power from Redis's machine, and starts it again.
func (w *witness) powerCut(breaks history.Breaks, persistence processes.Persistence) {
	w.t.Helper()
	w.fault(breaks, func() error {
		if err := w.redis.PowerCut(time.Hour); err != nil {
			return err
		}
		return w.redis.Start(proxytest.Ctx, persistence)
	})
}

// served returns a new client of a proxy that has a connection to the Redis that runs now.
func (w *witness) served(proxy int) *witnessClient {
	w.t.Helper()
	var c *witnessClient
	testwait.Until(w.t, "the proxy has found Redis", func() bool {
		c = w.dial(proxy) // a client that is told that Redis was lost is disconnected
		r, err := c.Do(testwait.Patience, "LOCK", fmt.Sprint("found", c.id), "600")
		return err == nil && r.Type == ':'
	})
	return c
}

// With appendfsync always the same history keeps the lock.
func TestPromisedExclusionAcrossPowerCutWithAlways(t *testing.T) {
	w := newWitness(t, processes.Always)
	first := w.dial(0).lock("job", 600)
	w.redis.Watch()
	w.powerCut(history.Breaks{}, processes.Always)
	b := w.served(1)
	if second := b.lock("job", 600); second != 0 {
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
	first := a.lock("job", 600)
	w.fault(history.Breaks{Leases: true}, func() error { return w.redis.SetClock(time.Hour) })
	if second := b.lock("job", 600); second <= first {
		t.Errorf("token %d after %d", second, first)
	}
	w.shows("exclusion")
}

// When Redis's clock steps back, leases last longer and tokens rise.
func TestPromisedExclusionAndTokensAcrossClockStepBack(t *testing.T) {
	w := newWitness(t, processes.None)
	a, b := w.dial(0), w.dial(1)
	first := a.lock("job", 600)
	w.fault(history.Breaks{}, func() error { return w.redis.SetClock(-time.Minute) })
	if second := b.lock("job", 600); second != 0 {
		t.Errorf("a second holder with token %d", second)
	}
	if a.unlock("job", first) != 1 {
		t.Error("the holder can't release")
	}
	if second := b.lock("job", 600); second <= first {
		t.Errorf("token %d after %d", second, first)
	}
}

// A lock was free for longer than --fence-retention, and then
// Redis's clock steps back: tokens go back.
func TestNotPromisedTokensAcrossClockStepBackAfterRetention(t *testing.T) {
	w := newWitness(t, processes.None, "--fence-retention", "1s")
	a := w.dial(0)
	a.unlock("job", a.lock("job", 600))
	testwait.Until(t, "Redis has forgotten the lock", func() bool { return w.integer("DBSIZE") == 0 })
	w.fault(history.Breaks{Tokens: true}, func() error { return w.redis.SetClock(-time.Hour) })
	a.lock("job", 600)
	w.shows("tokens")
}

// The holder of a session lock isn't told of its loss while its proxy is paused: only the holder's
// clock can show it. Here the lease is shortened once the proxy is paused, so that nothing ends it
// before.
func TestNotPromisedNoticeByPausedProxy(t *testing.T) {
	w := newWitness(t, processes.None)
	a, elsewhere, b := w.dial(0), w.dial(1), w.dial(1)
	elsewhere.id = a.id // the same client
	first := a.lock("job", 600, "SESSION")
	w.fault(history.Breaks{Notices: true}, func() error {
		w.proxies[0].Pause()
		elsewhere.relock("job", first, 1)
		testwait.Until(t, "another client gets the lock", func() bool {
			return b.lock("job", 600) != 0
		})
		// longer than a holder may take to hear of it
		return a.Idle(check.DefaultBounds().Notice + time.Millisecond)
	})
	w.proxies[0].Resume()
	a.unlock("job", first)
	w.shows("exclusion")
}

// An UNLOCK has no answer since it is still on its way. Its client asks again as the same owner, and
// has the lock by the same token until that UNLOCK comes.
func TestNotPromisedLockBehindALateUnlock(t *testing.T) {
	w := newWitness(t, processes.None)
	a, elsewhere, b := w.dial(0), w.dial(1), w.dial(1)
	token := a.lock("job", 600, "OWNER", "anna")
	w.relay.Set(badlink.State{HoldUp: true})
	a.Send("UNLOCK", "job", fmt.Sprint(token))
	testwait.Until(t, "the UNLOCK is on its way", w.relay.Holding)
	if again := elsewhere.lock("job", 600, "OWNER", "anna"); again != token {
		t.Errorf("the owner is given %d, not %d", again, token)
	}
	w.relay.Release()
	testwait.Until(t, "another client gets the lock", func() bool { return b.lock("job", 600) != 0 })
}

// A proxy gets a lock for a waiter and dies before it says so: the lock stays until its timeout.
func TestNotPromisedLockOfKilledProxy(t *testing.T) {
	w := newWitness(t, processes.None)
	a, b := w.dial(0), w.dial(1)
	a.unlock("job", a.lock("job", 600))      // from now on redis knows the script by its hash
	w.relay.Set(badlink.State{HoldDn: true}) // redis's answer doesn't come
	a.Send("LOCK", "job", "600")
	left := func() int64 { return w.integer("PTTL", "job") } // ms, negative if the lock is free
	testwait.Until(t, "Redis has given the lock", func() bool { return left() > 0 })
	w.proxies[0].Kill()
	if token := b.lock("job", 600); token != 0 {
		t.Errorf("another client has the lock: %d", token)
	}
	if ms := left(); ms <= 0 || ms > 600_000 {
		t.Errorf("the lock expires in %d ms, want at most 600 s", ms)
	}
}

// Changes of data on a link between a proxy and Redis are believed.
func TestNotPromisedAnswersOverCorruptedUpstreamLink(t *testing.T) {
	w := newWitness(t, processes.None)
	w.relay.Set(badlink.State{Corrupt: 0.01})
	text := strings.Repeat("x", 200)
	for range 50 {
		c := w.dial(0)
		if r, err := c.Do(2*time.Second, "ECHO", text); err == nil && !r.IsError() && r.Text != text {
			return
		}
	}
	t.Error("no wrong answer came: docs/guarantees.md is wrong")
}

// lastLocks takes a session lock, and then another lock with the token that it returns. Once the
// first is free, the proxy knows that the connection has ended: see proxyKnows.
func (c *witnessClient) lastLocks(key string) (token int64) {
	c.w.t.Helper()
	if r, err := c.Do(testwait.Patience, "LOCK", key+":session", "600", "SESSION"); err != nil ||
		r.Type != ':' {
		c.w.t.Fatal(r, err)
	}
	return c.lock(key, 600)
}

// proxyKnows returns when a proxy has dealt with the end of a client that has called lastLocks: its
// session lock is free. What else the end releases is released before.
func (w *witness) proxyKnows(key string) {
	w.t.Helper()
	testwait.Until(w.t, "the proxy has released the session lock", func() bool {
		return w.integer("EXISTS", key+":session") == 0
	})
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
		a.lastLocks(key)
		w.fault(history.Breaks{Leases: true}, func() error { a.Reset(); return nil })
		w.proxyKnows(key)
		if b.lock(key, 600) != 0 {
			w.shows("exclusion")
			return
		}
	}
	t.Error("no lock has been released: docs/guarantees.md is wrong")
}

// When a connection is reset later, as balancers do to idle ones, its holder keeps its lock and can
// release it. Here, too, the holder's machine sends the reset: a relay's can come behind a FIN.
func TestPromisedLeaseAcrossReset(t *testing.T) {
	w := newWitness(t, processes.None)
	a := w.dial(0)
	first := a.lastLocks("job")
	outlast(t, 300*time.Millisecond) // a reset within 100 ms can have crossed with the token
	a.Reset()
	w.proxyKnows("job")
	if second := w.dial(1).lock("job", 600); second != 0 {
		t.Errorf("a second holder with token %d", second)
	}
	if w.dial(0).unlock("job", first) != 1 {
		t.Error("the holder can't release with its token")
	}
}
