//go:build faults

package faults_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"lockproxy/internal/faults/client"
	"lockproxy/internal/faults/history"
	processes "lockproxy/internal/faults/process"
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
	c, err := client.Dial(w.redis.Addr)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(c.Close)
	w.clients++
	return &foreign{c, w, w.clients}
}

func (p *foreign) do(args ...string) client.Reply {
	p.w.t.Helper()
	r, err := p.Do(2*time.Second, args...)
	if err != nil || r.Error() {
		p.w.t.Fatalf("%q: %v, %v", args, r, err)
	}
	return r
}

func stamp(after time.Duration) string {
	return strconv.FormatInt(time.Now().Add(after).UnixMilli(), 10)
}

// expired reports whether the client takes a timestamp that it has read for an expired one.
func expired(r client.Reply) bool {
	n, err := strconv.ParseInt(r.Text, 10, 64)
	return err == nil && n < time.Now().UnixMilli()
}

// getset replaces the timestamp, and reports whether the client has won by that.
func (p *foreign) getset(timeout time.Duration) (won bool) {
	return expired(p.do("GETSET", "job", stamp(timeout)))
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
// model in lockcmd/model has found exactly these.
func TestNotPromisedLockNextToForeignClients(t *testing.T) {
	// After a takeover from a foreign client the proxy checks
	// the lock after 200 ms, and then after 500.
	takenOver := func(w *witness, loser *foreign) (holder *witnessClient, token int64) {
		if loser.do("SET", "job", stamp(-time.Second)); !expired(loser.do("GET", "job")) {
			t.Fatal("not expired")
		}
		holder = w.dial(0)
		if token = holder.lock("job", 30); token == 0 {
			t.Fatal("an expired timestamp isn't taken over")
		}
		return holder, token
	}
	t.Run("a shorter timestamp is believed", func(t *testing.T) {
		t.Parallel()
		for range 5 { // on a busy machine the proxy can check in between, and repair it
			w := newWitness(t, processes.None)
			loser, other := w.foreign(), w.foreign()
			_, token := takenOver(w, loser)
			time.Sleep(250 * time.Millisecond)
			believed := false
			other.spoils(func() {
				if loser.getset(20 * time.Millisecond) {
					t.Error("the loser believes that it has won")
				}
				time.Sleep(40 * time.Millisecond)
				believed = expired(other.do("GET", "job")) && other.getset(10*time.Second)
			})
			if believed {
				other.has(token, 10*time.Second)
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
		_, token := takenOver(w, late)
		time.Sleep(250 * time.Millisecond)
		other.spoils(func() {
			late.do("DEL", "job")
			if other.do("SETNX", "job", stamp(10*time.Second)).Int != 1 {
				t.Error("SETNX finds a key")
			}
		})
		other.has(token, 10*time.Second)
		w.shows("exclusion")
	})
	t.Run("DEL", func(t *testing.T) {
		t.Parallel()
		w := newWitness(t, processes.None)
		a := w.dial(0)
		token := a.lock("job", 30)
		w.foreign().spoils(func() { w.direct("DEL", "job") })
		w.dial(1).lock("job", 30)
		time.Sleep(20 * time.Millisecond)
		a.unlock("job", token)
		w.shows("exclusion", "lost")
	})
	t.Run("a loser after the grace period", func(t *testing.T) {
		t.Parallel()
		w := newWitness(t, processes.None)
		loser := w.foreign()
		a, token := takenOver(w, loser)
		time.Sleep(2100 * time.Millisecond)
		spoilt(w, loser, a, token)
	})
	// These two were not foreseen: the loser has read a timestamp of LOCK's own, and the next LOCK
	// has taken a free lock, without a grace period.
	t.Run("the loser saw a LOCK that was released since", func(t *testing.T) {
		t.Parallel()
		w := newWitness(t, processes.None)
		loser, a, b := w.foreign(), w.dial(0), w.dial(0)
		first := a.lock("job", 0.3)
		seen := loser.do("GET", "job")
		a.unlock("job", first)
		second := b.lock("job", 30)
		time.Sleep(350 * time.Millisecond)
		if !expired(seen) {
			t.Fatal("the timestamp that it read has not expired")
		}
		spoilt(w, loser, b, second)
	})
	t.Run("the loser saw a LOCK that had expired, kept by the guard", func(t *testing.T) {
		t.Parallel()
		w := newWitness(t, processes.None, "--takeover-guard", "1s")
		loser, b := w.foreign(), w.dial(0)
		w.dial(0).lock("job", 0.3) // and dies
		time.Sleep(400 * time.Millisecond)
		if !expired(loser.do("GET", "job")) {
			t.Fatal("the key is gone: there is no guard")
		}
		// in the guard's last millisecond it would be a takeover with a grace period
		time.Sleep(1200 * time.Millisecond)
		second := b.lock("job", 30)
		spoilt(w, loser, b, second)
	})
}

// spoilt lets a loser replace the timestamp of a lock without a grace period: when it has expired,
// others can take the lock, and the holder can't release it.
func spoilt(w *witness, loser *foreign, holder *witnessClient, token int64) {
	w.t.Helper()
	loser.spoils(func() {
		if loser.getset(500 * time.Millisecond) {
			w.t.Error("the loser believes that it has won")
		}
	})
	if next := w.dial(1).lock("job", 30, "WAIT", "5"); next <= token {
		w.t.Errorf("the next gets %s, after %d: docs/guarantees.md is wrong", fmt.Sprint(next),
			token)
	}
	time.Sleep(20 * time.Millisecond)
	if holder.unlock("job", token) != 0 {
		w.t.Error("the holder can release another client's lock")
	}
	w.shows("exclusion", "lost")
}
