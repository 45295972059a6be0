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
)

// newTestTracking is one whose connections are never opened, and its log.
func newTestTracking() (*Tracking, *bytes.Buffer) {
	log := &bytes.Buffer{}
	jobs := &background.Jobs{Timers: background.NewTimers(), Clients: background.NewClients(nil, false),
		Log: hclog.New(&hclog.LoggerOptions{Output: log})}
	jobs.Timers.Close()
	sessions := held.NewSessions(jobs, held.NewRegistry(func(*held.Lock) {}), &names.Filter{}, nil)
	return NewTracking(queue.New(&background.Ways{}), sessions), log
}

// A connection tracks at most maxTracked keys, and asks for each once; a key with a very long name
// it does not track. That there are more is logged once.
func TestTrackedKeysAreBounded(t *testing.T) {
	k, log := newTestTracking()
	as, other := names.Identity{}, names.Identity{User: "other"}
	for range 2 {
		for i := range maxTracked {
			k.Want(as, fmt.Sprint(i))
		}
	}
	c := k.conns[as]
	if len(c.tracked) != maxTracked || len(c.owed) != maxTracked || log.Len() > 0 {
		t.Fatalf("%d keys, %d requests, logged %s", len(c.tracked), len(c.owed), log)
	}
	for i := range 3 {
		k.Want(as, fmt.Sprint("more", i))
	}
	if len(c.tracked) != maxTracked || len(c.owed) != maxTracked {
		t.Errorf("%d keys, %d requests", len(c.tracked), len(c.owed))
	}
	if n := strings.Count(log.String(), "a login has more locks"); n != 1 {
		t.Errorf("logged %d times: %s", n, log)
	}
	k.Want(other, strings.Repeat("x", maxTrackedName+1))
	k.Want(other, strings.Repeat("x", maxTrackedName))
	k.Want(other, "")
	if c := k.conns[other]; len(c.tracked) != 2 {
		t.Errorf("%d keys of another login", len(c.tracked))
	}
}

// There are at most maxTracking connections, by login and by database. That there could be more is
// logged once.
func TestTrackingConnectionsAreBounded(t *testing.T) {
	for name, as := range map[string]func(i int) names.Identity{
		"logins":    func(i int) names.Identity { return names.Identity{User: fmt.Sprint(i)} },
		"databases": func(i int) names.Identity { return names.Identity{DB: i} },
	} {
		t.Run(name, func(t *testing.T) {
			k, log := newTestTracking()
			for i := range maxTracking {
				k.Want(as(i), "job")
			}
			if len(k.conns) != maxTracking || log.Len() > 0 {
				t.Fatalf("%d connections, logged %s", len(k.conns), log)
			}
			for i := range 3 {
				k.Want(as(maxTracking+i), "job")
			}
			if len(k.conns) != maxTracking || strings.Count(log.String(), "more logins") != 1 {
				t.Errorf("%d connections, logged %s", len(k.conns), log)
			}
		})
	}
}

// After a loss all keys are asked for again, and nobody relies on them until the upstream tracks
// them. A user that is refused is not asked again for a while.
func TestTrackingAfterALoss(t *testing.T) {
	k, _ := newTestTracking()
	as := names.Identity{}
	k.Want(as, "a")
	k.Want(as, "b")
	c := k.conns[as]
	follows := func(key string, now, soon bool) {
		t.Helper()
		if n, s := k.Follows(as, key); n != now || s != soon {
			t.Errorf("it follows %s: %v, soon %v", key, n, s)
		}
	}
	follows("a", false, false)
	c.accepted()
	follows("a", false, true)
	c.answered(false)
	follows("a", true, true)
	follows("b", false, true)
	if c.end(t.Context(), fmt.Errorf("closed by the upstream")) {
		t.Error("it is not opened again")
	}
	follows("a", false, false)
	if len(c.owed) != 2 || bytes.Count(c.unsent, []byte("EXISTS")) != 2 {
		t.Errorf("asked again: %q", c.unsent)
	}
	for _, passes := range []string{"LOADING Redis is loading", "CLUSTERDOWN", "BUSY script"} {
		if c.end(t.Context(), refusedError(passes)) {
			t.Errorf("it is not opened again after %s", passes)
		}
	}
	if !c.end(t.Context(), refusedError("NOPERM no permissions")) || len(k.conns) != 0 {
		t.Error("it is opened again as a user that was refused")
	}
	k.Want(as, "a")
	if len(k.conns) != 0 {
		t.Error("a user that was refused is asked again at once")
	}
}

// A connection whose keys concern nobody is given up, whatever others have; one that has just been
// wanted is not.
func TestTrackingEndsWithoutAKey(t *testing.T) {
	k, _ := newTestTracking()
	as := names.Identity{}
	k.Want(as, "a")
	c := k.conns[as]
	c.accepted()
	c.answered(false)
	now := time.Now()
	if err := c.beat(now); err != nil {
		t.Errorf("at once: %v", err)
	}
	c.used = now.Add(-trackingIdle)
	if err := c.beat(now.Add(trackingIdle)); err != errUnneeded {
		t.Errorf("later: %v", err)
	}
	k.Want(as, "b") // in the moment in which it ends
	if c.end(t.Context(), errUnneeded) {
		t.Error("it is not opened again for a new key")
	}
}

// An upstream that does not answer for long is given up; one that owes nothing is asked for a sign
// of life.
func TestTrackingNoticesSilence(t *testing.T) {
	k, _ := newTestTracking()
	as := names.Identity{}
	k.Want(as, "a")
	c := k.conns[as]
	c.accepted()
	now := time.Now()
	if err := c.beat(now.Add(trackingIdle / 2)); err != nil {
		t.Error(err)
	}
	if err := c.beat(now.Add(2 * trackingIdle)); err == nil {
		t.Error("silence is not noticed")
	}
	c.answered(false)
	c.unsent = nil
	c.swept = now.Add(time.Hour) // its key concerns nobody here, and is kept
	if err := c.beat(now); err != nil || !bytes.Contains(c.unsent, []byte("PING")) {
		t.Errorf("%v, sent %q", err, c.unsent)
	}
	c.answered(false) // the PONG
	if now, _ := k.Follows(as, "a"); !now || len(c.owed) != 0 {
		t.Errorf("after the sign of life: %v", c.owed)
	}
}
