package held

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"lockproxy/internal/monotonic"
	"lockproxy/internal/names"
	"lockproxy/internal/test/testwait"
	"lockproxy/lockcmd/script"
)

func testRegistry() (*Registry, *atomic.Uint64) {
	expired := new(atomic.Uint64)
	return NewRegistry(func(*Lock) { expired.Add(1) }), expired
}

// taken is a lock that a connection asked for at a time.
func taken(key, connection string, token int64, asked int64, timeout time.Duration) *Lock {
	lock := &Lock{Request: script.Request{Key: key, Connection: connection}, Token: token}
	lock.Since = asked
	lock.Until.Store(asked + int64(timeout))
	return lock
}

func TestRegistry(t *testing.T) {
	r, expired := testRegistry()
	id, now := names.Lock{DB: 0, Key: "a"}, monotonic.Now()
	ends := func(p script.Proof, token int64, want bool) {
		t.Helper()
		one, _ := r.Remove(id, p, token)
		if got := one != nil; got != want {
			t.Errorf("release by %v of %d ended it: %v", p, token, got)
		}
	}
	r.Put(taken("a", "c1", 7, now, time.Second))
	ends(script.Proof{Kind: "token", Value: "6"}, 0, false)
	ends(script.Proof{Kind: "connection", Value: "c2"}, 0, false)
	ends(script.Proof{Kind: "force", Value: ""}, 8, false)
	ends(script.Proof{Kind: "token", Value: "7"}, 0, true)
	ends(script.Proof{Kind: "token", Value: "7"}, 0, false)

	r.Put(taken("a", "c1", 8, now, time.Second))
	ends(script.Proof{Kind: "connection", Value: "c1"}, 0, true)
	r.Put(taken("a", "c1", 9, now, time.Second))
	ends(script.Proof{Kind: "force", Value: ""}, 9, true)
	if left := r.Sweep(now + int64(time.Hour)); left != 0 || expired.Load() != 0 {
		t.Errorf("%d left, %d expired", left, expired.Load())
	}
}

// An exclusive lock ends only by its own proof, also where a shared one of its name is left.
func TestAnExclusiveLockNextToASharedOne(t *testing.T) {
	r, _ := testRegistry()
	id, now := names.Lock{DB: 0, Key: "a"}, monotonic.Now()
	shared := taken("a", "reader", 7, now, time.Second)
	shared.Shared = true
	r.Put(shared)
	exclusive := taken("a", "writer", 8, now, time.Second)
	s := r.lock(id)
	s.set(exclusive) // as a lock that was lost without notice leaves it
	s.mu.Unlock()
	if one, _ := r.Remove(id, script.Proof{Kind: "connection", Value: "another"}, 0); one != nil {
		t.Errorf("another connection's release has ended %d", one.Token)
	}
	one, _ := r.Remove(id, script.Proof{Kind: "connection", Value: "writer"}, 0)
	if one != exclusive {
		t.Errorf("its own release has ended %v", one)
	}
}

func TestRegisteredLocksExpire(t *testing.T) {
	r, expired := testRegistry()
	now := monotonic.Now()
	after := func(d time.Duration) int64 { return now + int64(d) }
	r.Put(taken("short", "c", 1, now, time.Second))
	r.Put(taken("renewed", "c", 2, now, time.Second))
	r.Put(taken("owner", "c", 3, now, time.Minute))
	r.Put(taken("owner", "d", 3, after(time.Second/2), time.Second)) // never shortened
	r.Put(taken("next", "c", 4, now, time.Second))
	r.extend(names.Lock{DB: 0, Key: "renewed"}, 2, after(10*time.Second))
	r.extend(names.Lock{DB: 0, Key: "short"}, 99, after(10*time.Second)) // another's token
	r.Put(taken("next", "d", 5, after(2*time.Second), time.Second))
	if expired.Load() != 1 {
		t.Errorf("%d expired by a successor, want 1", expired.Load())
	}
	if left := r.Sweep(after(1500 * time.Millisecond)); left != 4 {
		t.Errorf("%d left within the grace, want 4", left)
	}
	if left := r.Sweep(after(3 * time.Second)); left != 3 || expired.Load() != 2 {
		t.Errorf("%d left, %d expired", left, expired.Load())
	}
	lock, _ := r.Remove(names.Lock{DB: 0, Key: "owner"}, script.Proof{Kind: "token", Value: "3"}, 0)
	if lock == nil || lock.Since != now {
		t.Errorf("held: %+v, since %v", lock, now)
	}
}

// A relayed command that can have ended all session locks, such as FLUSHALL, has them looked up by
// a job: an event loop has seen it.
func TestAllSessionsAreVerifiedByAJob(t *testing.T) {
	r, _ := testRegistry()
	s := testSessions(r)
	defer s.Timers.Close()
	for i := range r.shards {
		r.shards[i].mu.Lock()
		defer r.shards[i].mu.Unlock()
	}
	verified := make(chan bool, 1)
	go func() { // ends by itself
		s.VerifySessions(0, nil, LostBy("FLUSHALL"))
		verified <- true
	}()
	testwait.For(t, "the caller goes on", verified)
}

// An owner's earlier sessions that have a lock are kept with the last one, as long as they exist.
func TestRegisteredSessions(t *testing.T) {
	r, _ := testRegistry()
	id, now := names.Lock{DB: 0, Key: "a"}, monotonic.Now()
	session := func(connection string) *Lock {
		lock := taken("a", connection, 7, now, time.Second)
		lock.by = &Holder{}
		r.Put(lock)
		return lock
	}
	check := func(want ...string) {
		t.Helper()
		var got []string
		lock, _ := r.Remove(id, script.Proof{Kind: "token", Value: "7"}, 0)
		for _, other := range lock.sessionsExcept("") {
			got = append(got, other.Connection)
		}
		if !slices.Equal(got, want) {
			t.Errorf("sessions %v, want %v", got, want)
		}
	}
	session("c1")
	session("c2")
	session("c1") // once more
	check("c2", "c1")

	first, _, last := session("c1"), session("c2"), session("c3")
	r.leave(first)
	r.leave(last)
	check("c2")

	session("c1")
	r.Put(taken("a", "c2", 7, now, time.Second))
	check("c1")

	for i := range 100 {
		session(fmt.Sprint(i))
	}
	last, _ = r.Remove(id, script.Proof{Kind: "token", Value: "7"}, 0)
	if n := len(last.others); n != 99 {
		t.Errorf("%d sessions are kept", n)
	}
}

// However often a lock is taken after the last one has expired, each is counted once.
func TestEachExpiryIsCountedOnce(t *testing.T) {
	r, expired := testRegistry()
	now := monotonic.Now()
	for i := range 2 * maxRegistered {
		r.Put(taken("job", "c", int64(i), now+int64(i)*int64(time.Hour), time.Minute))
	}
	if got := expired.Load(); got != 2*maxRegistered-1 {
		t.Errorf("%d have expired, want %d", got, 2*maxRegistered-1)
	}
}

// A lock that RELOCK has made shorter expires before others that ended sooner.
func TestShortenedLockExpires(t *testing.T) {
	r, expired := testRegistry()
	now := monotonic.Now()
	for token := range int64(8) {
		lock := taken("a", "c", token+1, now, time.Duration(token+1)*time.Minute)
		lock.Shared = true
		r.Put(lock)
	}
	r.extend(names.Lock{Key: "a"}, 8, now+int64(time.Second))
	if left := r.Sweep(now + int64(10*time.Second)); left != 7 || expired.Load() != 1 {
		t.Errorf("%d left, %d expired", left, expired.Load())
	}
}

// Whatever happens to locks, a sweep removes those that have expired, and no others.
func TestSweepAgainstALook(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, expired := testRegistry()
		now, token, gone, left := monotonic.Now(), int64(0), uint64(0), 0
		var all []*Lock // that were taken
		key := func() string { return rapid.SampledFrom([]string{"a", "a", "b"}).Draw(t, "key") }
		some := func() *Lock {
			if len(all) == 0 {
				return taken("a", "c", 99, now, time.Second)
			}
			return all[rapid.IntRange(0, len(all)-1).Draw(t, "lock")]
		}
		seconds := func() int64 {
			return int64(time.Duration(rapid.IntRange(1, 60).Draw(t, "s")) * time.Second)
		}
		look := func() { // what a sweep must find
			gone, left = expired.Load(), 0
			r.VisitAll(func(lock *Lock) {
				if now > lock.Until.Load()+int64(expiryGrace) {
					gone++
				} else {
					left++
				}
			})
		}
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				if token++; rapid.Bool().Draw(t, "again") {
					token = max(token-2, 1)
				}
				lock := taken(key(), "c", token, now, time.Duration(seconds()))
				lock.Shared = rapid.Bool().Draw(t, "shared")
				if rapid.Bool().Draw(t, "session") {
					lock.by, lock.Connection = &Holder{}, fmt.Sprint(len(all))
				}
				r.Put(lock)
				all = append(all, lock)
			},
			"release": func(*rapid.T) {
				lock := some()
				r.Remove(lock.ID(), script.Proof{Kind: "token", Value: lock.tokenText()}, 0)
			},
			"relock": func(*rapid.T) {
				lock := some()
				r.extend(lock.ID(), lock.Token, now+seconds())
			},
			"renew": func(*rapid.T) {
				if lock := some(); lock.by != nil {
					lock.Until.Store(max(now+seconds(), lock.Until.Load()))
				}
			},
			"leave":       func(*rapid.T) { r.leave(some()) },
			"lose":        func(*rapid.T) { r.lose(some(), rapid.Bool().Draw(t, "its token holds")) },
			"time passes": func(*rapid.T) { now += seconds() },
			"": func(t *rapid.T) {
				look()
				if got := r.Sweep(now); got != left || expired.Load() != gone {
					t.Errorf("%d left, %d expired, want %d and %d", got, expired.Load(), left, gone)
				}
			},
		})
	})
}
