package hints

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"lockproxy/internal/names"
	"lockproxy/lockcmd/background"
	"lockproxy/lockcmd/held"
	"lockproxy/lockcmd/queue"
	"lockproxy/lockcmd/script"
	"lockproxy/lockcmd/search"
)

// newTestListener is one whose connections are never opened, and its log.
func newTestListener() (*Listener, *bytes.Buffer) {
	log := &bytes.Buffer{}
	jobs := &background.Jobs{Timers: background.NewTimers(),
		Clients: background.NewClients(nil, false),
		Scripts: script.NewMaker(script.Config{Proxy: "p"}),
		Log:     hclog.New(&hclog.LoggerOptions{Output: log})}
	jobs.Timers.Close()
	return newListenerWith(jobs, search.Refuse), log
}

func newListenerWith(jobs *background.Jobs, deadlocks string) *Listener {
	registry, qs := held.NewRegistry(func(*held.Lock) {}), queue.New(&background.Ways{})
	return NewListener(qs, held.NewSessions(jobs, registry, &names.Filter{}, nil),
		search.New(jobs, deadlocks, qs, registry, nil, nil), nil)
}

// One of the users that wait subscribes. Another one does if Redis refuses that, or if its login is
// no longer valid.
func TestAnotherUserSubscribes(t *testing.T) {
	l, _ := newTestListener()
	for _, user := range []string{"a", "b"} {
		l.Listen(names.Identity{User: user}, "job")
	}
	first := l.subscriber
	l.Listen(names.Identity{User: "c"}, "job")
	if l.subscriber != first {
		t.Errorf("%v, then %v", first.as, l.subscriber.as)
	}
	if !first.ended(t.Context(), refusedError("WRONGPASS no")) {
		t.Error("a login that is no longer valid is tried again")
	}
	second := l.subscriber
	if second == nil || second == first {
		t.Fatalf("%v is refused, and %v subscribes", first, second)
	}
	if second.ended(t.Context(), fmt.Errorf("closed by the upstream")) || l.subscriber != second {
		t.Error("a connection that is lost is not opened again")
	}
	for i := range 9 {
		l.Listen(names.Identity{User: fmt.Sprint(i)}, "job")
	}
	tracks := names.Identity{User: "tracks"}
	l.Want(tracks, "job")
	second.refuseLocked(true, false)
	third := l.subscriber
	if third == nil || third.as != tracks {
		t.Fatalf("%v subscribes, and not the one that has a connection", third)
	}
	for as := range l.conns {
		if as != first.as && as != tracks {
			l.conns[as].deaf = time.Now()
		}
	}
	third.refuseLocked(true, false)
	if l.subscriber != nil {
		t.Errorf("%v subscribes", l.subscriber.as)
	}
	first.deaf = time.Now().Add(-2 * channelsRetry)
	if l.Listen(third.as, "job"); l.subscriber != first {
		t.Errorf("later %v subscribes", l.subscriber)
	}
}

// However many users wait, few are remembered, and those that were refused make room for others.
func TestSubscribersAreBounded(t *testing.T) {
	l, log := newTestListener()
	for i := range maxConns + 1 {
		l.Listen(names.Identity{User: fmt.Sprint(i)}, "job")
	}
	if len(l.conns) != maxConns {
		t.Errorf("%d logins", len(l.conns))
	}
	for l.subscriber != nil {
		l.subscriber.ended(t.Context(), refusedError("NOPERM no"))
	}
	allowed := names.Identity{User: "allowed"}
	l.Listen(allowed, "job")
	if s := l.subscriber; s == nil || s.as != allowed || len(l.conns) > maxConns || log.Len() > 0 {
		t.Errorf("%v subscribes, of %d, logged %s", s, len(l.conns), log)
	}
	for _, c := range l.conns { // all track keys, and none may subscribe
		c.serving = true
		c.refuseLocked(true, false)
	}
	for range 3 {
		l.Listen(names.Identity{User: "one more"}, "job")
	}
	n := strings.Count(log.String(), "than are asked to subscribe")
	if n != 1 || l.subscriber != nil {
		t.Errorf("logged %d times: %s", n, log)
	}
}

// A connection tracks at most maxTracked keys, and asks for each once; a key with a very long name
// it does not track. That there are more is logged once.
func TestTrackedKeysAreBounded(t *testing.T) {
	l, log := newTestListener()
	as, other := names.Identity{}, names.Identity{User: "other"}
	for range 2 {
		for i := range maxTracked {
			l.Want(as, fmt.Sprint(i))
		}
	}
	c := l.conns[as]
	c.begin()
	if len(c.keys) != maxTracked || len(c.owed) != maxTracked+2 || log.Len() > 0 {
		t.Fatalf("%d keys, %d requests, logged %s", len(c.keys), len(c.owed), log)
	}
	for i := range 3 {
		l.Want(as, fmt.Sprint("more", i))
	}
	if len(c.keys) != maxTracked || len(c.owed) != maxTracked+2 {
		t.Errorf("%d keys, %d requests", len(c.keys), len(c.owed))
	}
	if n := strings.Count(log.String(), "a login has more locks"); n != 1 {
		t.Errorf("logged %d times: %s", n, log)
	}
	l.Want(other, strings.Repeat("x", maxTrackedName+1))
	l.Want(other, strings.Repeat("x", maxTrackedName))
	l.Want(other, "")
	if c := l.conns[other]; len(c.keys) != 2 {
		t.Errorf("%d keys of another login", len(c.keys))
	}
}

// There are at most maxConns connections, by login and by database. That there could be more is
// logged once.
func TestConnectionsAreBounded(t *testing.T) {
	for name, as := range map[string]func(i int) names.Identity{
		"logins":    func(i int) names.Identity { return names.Identity{User: fmt.Sprint(i)} },
		"databases": func(i int) names.Identity { return names.Identity{DB: i} },
	} {
		t.Run(name, func(t *testing.T) {
			l, log := newTestListener()
			for i := range maxConns {
				l.Want(as(i), "job")
			}
			if len(l.conns) != maxConns || log.Len() > 0 {
				t.Fatalf("%d connections, logged %s", len(l.conns), log)
			}
			for i := range 3 {
				l.Want(as(maxConns+i), "job")
			}
			if len(l.conns) != maxConns || strings.Count(log.String(), "more logins") != 1 {
				t.Errorf("%d connections, logged %s", len(l.conns), log)
			}
		})
	}
}

// After a loss all keys are asked for again, and nobody relies on them until the upstream tracks
// them. A user that is refused is not asked again for a while.
func TestTrackingAfterALoss(t *testing.T) {
	l, _ := newTestListener()
	as := names.Identity{}
	l.Want(as, "a")
	l.Want(as, "b")
	c := l.conns[as]
	follows := func(key string, now, soon bool) {
		t.Helper()
		if n, s := l.Follows(as, key); n != now || s != soon {
			t.Errorf("it follows %s: %v, soon %v", key, n, s)
		}
	}
	follows("a", false, false)
	c.begin()
	c.answered(false)
	c.answered(false)
	follows("a", false, true)
	c.answered(false)
	c.answered(false)
	follows("a", true, true)
	follows("b", true, true)
	if c.ended(t.Context(), fmt.Errorf("closed by the upstream")) {
		t.Error("it is not opened again")
	}
	follows("a", false, false)
	c.begin()
	if len(c.owed) != 4 || bytes.Count(c.unsent, []byte("EXISTS")) != 2 {
		t.Errorf("asked again: %q", c.unsent)
	}
	for _, passes := range []string{"LOADING Redis is loading", "CLUSTERDOWN", "BUSY script"} {
		if c.ended(t.Context(), refusedError(passes)) {
			t.Errorf("it is not opened again after %s", passes)
		}
	}
	if !c.ended(t.Context(), refusedError("NOPERM no permissions")) || len(c.keys) != 0 {
		t.Error("it is opened again as a user that was refused")
	}
	l.Want(as, "a")
	if len(c.keys) != 0 || c.serving {
		t.Error("a user that was refused is asked again at once")
	}
}

// A connection whose keys concern nobody is given up, whatever others have; one that has just been
// wanted is not.
func TestConnectionEndsWithoutAKey(t *testing.T) {
	l, _ := newTestListener()
	as := names.Identity{}
	l.Want(as, "a")
	c := l.conns[as]
	c.begin()
	for range 3 {
		c.answered(false)
	}
	now := time.Now()
	if err := c.beat(now); err != nil {
		t.Errorf("at once: %v", err)
	}
	c.used = now.Add(-connIdle)
	if err := c.beat(now.Add(connIdle)); err != errUnneeded {
		t.Errorf("later: %v", err)
	}
	l.Want(as, "b") // in the moment in which it ends
	if c.ended(t.Context(), errUnneeded) {
		t.Error("it is not opened again for a new key")
	}
}

// An upstream that does not answer for long is given up; one that owes nothing is asked for a sign
// of life.
func TestSilenceIsNoticed(t *testing.T) {
	l, _ := newTestListener()
	as := names.Identity{}
	l.Want(as, "a")
	c := l.conns[as]
	c.begin()
	now := time.Now()
	if err := c.beat(now.Add(connIdle / 2)); err != nil {
		t.Error(err)
	}
	if err := c.beat(now.Add(2 * connIdle)); err == nil {
		t.Error("silence is not noticed")
	}
	for range 3 {
		c.answered(false)
	}
	c.unsent = nil
	c.swept = now.Add(time.Hour) // its key concerns nobody here, and is kept
	if err := c.beat(now); err != nil || !bytes.Contains(c.unsent, []byte("PING")) {
		t.Errorf("%v, sent %q", err, c.unsent)
	}
	c.answered(false) // the PONG
	if now, _ := l.Follows(as, "a"); !now || len(c.owed) != 0 {
		t.Errorf("after the sign of life: %v", c.owed)
	}
}
