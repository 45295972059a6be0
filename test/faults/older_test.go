//go:build faults

package faults_test

import (
	"strconv"
	"testing"
	"time"

	"lockproxy/internal/test/badlink"
	"lockproxy/internal/test/faults/check"
	"lockproxy/internal/test/faults/client"
	"lockproxy/internal/test/faults/history"
	processes "lockproxy/internal/test/faults/process"
	"lockproxy/internal/test/testwait"
)

// foreign is a client of Redis itself that locks by a recipe
// with timestamps, in ms, one command at a time.
type foreign struct {
	*client.Conn
	w  *witness
	id int
}

func (w *witness) foreign() *foreign {
	w.t.Helper()
	w.clients++
	return &foreign{w.connect(w.redis.Addr), w, w.clients}
}

func (p *foreign) do(args ...string) client.Reply {
	p.w.t.Helper()
	r, err := p.Do(testwait.Patience, args...)
	if err != nil || r.IsError() {
		p.w.t.Fatalf("%q: %v, %v", args, r, err)
	}
	return r
}

// ahead lets time pass by the clocks of Redis and of its foreign clients, which agree.
func (w *witness) ahead(d time.Duration) {
	w.t.Helper()
	w.clock += d
	if err := w.redis.SetClock(w.clock); err != nil {
		w.t.Fatal(err)
	}
}

func (w *witness) now() time.Time { return time.Now().Add(w.clock) }

func (w *witness) stamp(after time.Duration) string {
	return strconv.FormatInt(w.now().Add(after).UnixMilli(), 10)
}

// expired reports whether foreign clients take a timestamp that they have read for an expired one.
func (w *witness) expired(r client.Reply) bool {
	n, err := strconv.ParseInt(r.Text, 10, 64)
	return err == nil && n < w.now().UnixMilli()
}

// getset replaces the timestamp, and reports whether the client has won by that.
func (p *foreign) getset(timeout time.Duration) (won bool) {
	return p.w.expired(p.do("GETSET", "job", p.w.stamp(timeout)))
}

// has records that the client has the lock by its recipe. It
// gets no token: any greater one will do.
func (p *foreign) has(than int64, timeout time.Duration) {
	now := history.Now()
	p.w.notes.Add(history.Op{Client: p.id, Kind: history.Lock, Key: "job",
		Timeout: timeout.Nanoseconds(), Call: now, Return: now, Outcome: history.OK, Result: than +
			1})
}

// spoils is what a foreign client does to a lock of LOCK's.
func (p *foreign) spoils(do func()) {
	p.w.fault(history.Breaks{Leases: true, Notices: true}, func() error { do(); return nil })
}

// These are the effects that programs with their own recipes can have on a lock of LOCK's. The
// model in internal/test/model has found exactly these.
func TestNotPromisedLockNextToForeignClients(t *testing.T) {
	t.Run("a shorter timestamp is believed", func(t *testing.T) {
		t.Parallel()
		for range 5 { // a check that has passed the link already can repair it
			w := newWitness(t, processes.None)
			loser, other := w.foreign(), w.foreign()
			_, token := w.takenOver(loser)
			w.betweenChecks()
			believed := false
			other.spoils(func() {
				if loser.getset(20 * time.Millisecond) {
					t.Error("the loser believes that it has won")
				}
				w.ahead(40 * time.Millisecond)
				believed = w.expired(other.do("GET", "job")) && other.getset(10*time.Minute)
			})
			if believed {
				other.has(token, 10*time.Minute)
				w.shows("exclusion")
				return
			}
		}
		t.Error("the shorter timestamp is never believed: docs/guarantees.md is wrong")
	})
	t.Run("DEL and SETNX in the grace period", func(t *testing.T) {
		t.Parallel()
		w := newWitness(t, processes.None)
		late, other := w.foreign(), w.foreign()
		_, token := w.takenOver(late)
		w.betweenChecks()
		other.spoils(func() {
			// again if a check that had passed the link has repaired it in between
			testwait.Until(t, "SETNX finds no key", func() bool {
				late.do("DEL", "job")
				return other.do("SETNX", "job", w.stamp(10*time.Minute)).Int == 1
			})
		})
		other.has(token, 10*time.Minute)
		w.shows("exclusion")
	})
	t.Run("DEL", func(t *testing.T) {
		t.Parallel()
		w := newWitness(t, processes.None)
		a := w.dial(0)
		token := a.lock("job", 600)
		w.foreign().spoils(func() { w.integer("DEL", "job") })
		w.dial(1).lock("job", 600)
		outlast(t, check.DefaultBounds().Lease)
		a.unlock("job", token)
		w.shows("exclusion", "lost")
	})
	t.Run("a loser after the grace period", func(t *testing.T) {
		t.Parallel()
		w := newWitness(t, processes.None)
		loser := w.foreign()
		a, token := w.takenOver(loser)
		w.ahead(time.Minute)
		spoilt(w, loser, a, token)
	})
	// These two were not foreseen: the loser has read a timestamp of LOCK's own, and the next LOCK
	// has taken a free lock, without a grace period.
	t.Run("the loser saw a LOCK that was released since", func(t *testing.T) {
		t.Parallel()
		w := newWitness(t, processes.None)
		loser, a, b := w.foreign(), w.dial(0), w.dial(0)
		first := a.lock("job", 600)
		seen := loser.do("GET", "job")
		a.unlock("job", first)
		second := b.lock("job", halfDay)
		w.ahead(11 * time.Minute)
		if !w.expired(seen) {
			t.Fatal("the timestamp that it read has not expired")
		}
		spoilt(w, loser, b, second)
	})
	t.Run("the loser saw a LOCK that had expired, kept by the guard", func(t *testing.T) {
		t.Parallel()
		w := newWitness(t, processes.None, "--takeover-guard", "10m")
		loser, b := w.foreign(), w.dial(0)
		// not in the history, whose clock does not go ahead
		w.dial(0).Do(testwait.Patience, "LOCK", "job", "600")
		w.ahead(11 * time.Minute)
		if !w.expired(loser.do("GET", "job")) {
			t.Fatal("the key is gone: there is no guard")
		}
		w.ahead(10 * time.Minute) // the guard is over, too
		second := b.lock("job", halfDay)
		spoilt(w, loser, b, second)
	})
}

// halfDay is a lease in seconds that outlasts all that these tests let pass.
const halfDay = 12 * 3600

// takenOver has a lock taken over from a foreign client, which knows nothing of it yet.
func (w *witness) takenOver(loser *foreign) (holder *witnessClient, token int64) {
	w.t.Helper()
	loser.do("SET", "job", w.stamp(-time.Second))
	if !w.expired(loser.do("GET", "job")) {
		w.t.Fatal("not expired")
	}
	holder = w.dial(0)
	if token = holder.lock("job", halfDay); token == 0 {
		w.t.Fatal("an expired timestamp isn't taken over")
	}
	return holder, token
}

// betweenChecks holds back the checks of the lock that a proxy has taken over. Otherwise they come
// after up to half a second, for two seconds.
func (w *witness) betweenChecks() { w.relay.Set(badlink.State{HoldUp: true}) }

// spoilt lets a loser replace the timestamp of a lock without a grace period: when it has expired,
// others can take the lock, and the holder can't release it.
func spoilt(w *witness, loser *foreign, holder *witnessClient, token int64) {
	w.t.Helper()
	loser.spoils(func() {
		if loser.getset(10 * time.Minute) {
			w.t.Error("the loser believes that it has won")
		}
	})
	b := w.dial(1)
	if b.lock("job", 600) != 0 {
		w.t.Error("another client gets the lock while the loser's timestamp counts")
	}
	w.ahead(time.Hour)
	if next := b.lock("job", 600); next <= token {
		w.t.Errorf("the next gets %d, after %d: docs/guarantees.md is wrong", next, token)
	}
	outlast(w.t, check.DefaultBounds().Lease)
	if holder.unlock("job", token) != 0 {
		w.t.Error("the holder can release another client's lock")
	}
	w.shows("exclusion", "lost")
}
