package lockcmd

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/redis/go-redis/v9"

	"lockproxy/internal/journal"
	"lockproxy/internal/names"
	"lockproxy/internal/resp"
	"lockproxy/lockcmd/queue"
	"lockproxy/lockcmd/script"
)

// valueSession answers a GET with a value. read is called when that is on its way.
type valueSession struct {
	slowSession
	value string
	read  func()
}

func (s *valueSession) Get(string) resp.Value {
	s.read()
	return resp.Value{Type: '$', Text: []byte(s.value)}
}

// A value is deleted after it has been read for those who wait. Who asks after that, and joins them
// before they are answered, is not given it.
func TestDeletedValueIsNotShared(t *testing.T) {
	l := newTestLocks()
	defer l.Close()
	join := func() *queue.Waiter {
		r := script.Request{Key: "k:once:x", Once: true, Value: "k"}
		w, _ := l.queues.Join(r, names.Identity{}, 0, time.Now())
		return w
	}
	first, second := join(), join()
	var late *queue.Waiter
	s := &valueSession{value: "deleted", read: func() { late = join() }}
	turn, _ := s.turnOf(l, first)
	there, err := false, error(nil)
	reply, step := l.readForAll(turn, first, func(is bool, failed error) (Reply, *Step) {
		there, err = is, failed
		return Reply{}, nil
	})
	if run(t.Context(), turn.c, s, reply, step); !there || err != nil || !first.State().Ended || !second.State().Ended {
		t.Fatalf("%t, %v: those who waited are not served", there, err)
	}
	if at := late.State(); !at.Waits || !at.PollNow {
		t.Error("who came later has the value, or does not ask at once")
	}
}

// A waiter whose time is over is handed the claim in that moment, and somebody has stored a value
// meanwhile. It is given the value, and the claim is released.
func TestClaimHandedAsTheWaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		released := &atomic.Int32{}
		l := New(Config{MaxTimeout: time.Hour}, "proxy", countingConnect(released), hclog.NewNullLogger())
		defer l.Close()
		r := script.Request{Key: "k:once:x", Once: true, Value: "k", Connection: "c", Number: "1",
			Timeout: time.Hour}
		s := &valueSession{value: "stored", read: func() {}}
		w, _ := l.queues.Join(r, names.Identity{}, time.Millisecond, time.Now())
		offer := l.queues.Of(w.ID()).Offer(names.Identity{}, true, time.Now())
		offer.End(queue.Released{Done: true, Token: 200, Given: 1}, time.Now())
		turn, _ := s.turnOf(l, w)
		reply := endTurn(t.Context(), turn, s)
		if string(reply.Text) != "stored" || reply.Given != nil || released.Load() == 0 {
			t.Errorf("its client is told %+v, and %d releases", reply, released.Load())
		}
	})
}

// A waiter that was given the value has not given up.
func TestServedWaiterHasNotGivenUp(t *testing.T) {
	l := New(Config{MaxTimeout: time.Hour, History: 1 << 20}, "proxy",
		func(names.Identity) *redis.Client { return nil }, hclog.NewNullLogger())
	defer l.Close()
	s := &slowSession{}
	for _, served := range []bool{true, false} {
		r := script.Request{Key: "k:once:x", Once: true, Value: "k", Connection: "c", Number: "1",
			Client: "client"}
		w, _ := l.queues.Join(r, names.Identity{}, time.Minute, time.Now().Add(-time.Second))
		value := "text"
		if l.waits.seen.journal.WaitBegan(w.ID(), 0, 0); served {
			w.Serve(&value, time.Now())
		}
		turn, _ := s.turnOf(l, w)
		endTurn(t.Context(), turn, s)
		events, _ := l.waits.seen.journal.Events(-1<<62, 10, func(e *journal.Event) bool {
			return e.Kind == journal.GaveUp
		})
		if gaveUp := len(events) > 0; gaveUp == served {
			t.Errorf("it was served: %v, and has given up: %v", served, gaveUp)
		}
	}
}

// endTurn ends a turn whose time has expired.
func endTurn(ctx context.Context, t *turn, on upstream) Reply {
	t.queued = true
	t.w.WakeBy(t.c.Waker.Wake)
	reply, step := t.leave(nil)
	return run(ctx, t.c, on, reply, step)
}

// A value that can be the timestamp of a lock costs a second round trip once. From then on the lock
// record is asked for together with the value, until that is another one.
func TestDigitsCostOneRoundTrip(t *testing.T) {
	l := New(Config{MaxTimeout: time.Hour}, "proxy",
		func(names.Identity) *redis.Client { return nil }, hclog.NewNullLogger())
	defer l.Close()
	value, record := "$13\r\n1795830572734\r\n", "$-1\r\n"
	once := func(as names.Identity) (trips, gets int, said Reply) {
		s := &slowSession{}
		c := Client{Holder: &s.holder, As: as}
		step := l.beginOnce(c, [][]byte{[]byte("k"), []byte("600")})
		for step != nil {
			trips++
			gets += len(step.Commands().List)
			answers := [][]byte{[]byte(value), []byte(record)}[:len(step.Commands().List)]
			said, step = step.Finish(script.Answer{Raw: answers}, nil)
		}
		return trips, gets, said
	}
	for i, want := range []struct {
		value       string
		trips, gets int
	}{
		{value, 2, 3}, {value, 1, 2}, {value, 1, 2}, {"$4\r\ntext\r\n", 1, 2},
		{"$4\r\ntext\r\n", 1, 1}, {value, 2, 3},
	} {
		value = want.value
		if trips, gets, said := once(names.Identity{}); trips != want.trips || gets != want.gets ||
			!strings.Contains(value, string(said.Text)) || len(said.Text) == 0 {
			t.Errorf("%d: %d round trips, %d GETs: %q", i, trips, gets, said.Text)
		}
	}
	if trips, _, _ := once(names.Identity{DB: 1}); trips != 2 {
		t.Error("another database's value is taken for it")
	}
	record = "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n"
	if trips, _, said := once(names.Identity{}); trips != 1 || said.Err != errIsLock {
		t.Errorf("of a lock, after %d round trips: %+v", trips, said)
	}
}
