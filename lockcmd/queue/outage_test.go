package queue

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/foreign"
	"lockproxy/internal/names"
	"lockproxy/lockcmd/background"
	"lockproxy/lockcmd/failure"
	"lockproxy/lockcmd/script"
)

// line is some waiters of a lock, in order.
func line(n int, now time.Time) (qs *Queues, list []*Waiter) {
	qs = New(&background.Ways{})
	for range n {
		list = append(list, another(qs, now))
	}
	return qs, list
}

// another is a further waiter.
func another(qs *Queues, now time.Time) *Waiter {
	w, _ := qs.Join(script.Request{Key: "job", Connection: "c", Number: "1"}, names.Identity{}, 0, now)
	return w
}

// A poll of the first waiter fails. The others are told its error when their time has expired, unless
// that concerns the first alone: then others seem to hold the lock. An answer that is late is not
// their own: they have asked for nothing.
func TestOutageOfAFailedPoll(t *testing.T) {
	now := time.Unix(1e9, 0)
	for _, test := range []struct {
		err  error
		says string // what the others are told; "" is nothing
	}{
		{errUnknown, errUnknown.Error()},
		{script.ServerError("LOADING Redis is loading"), "LOADING Redis is loading"},
		{failure.LateError{Answered: make(chan struct{})}, "it was not acquired"},
		{script.ServerError("NOPERM no rights"), ""},
		{script.ServerError("NOAUTH log in"), ""},
		{failure.ErrGone, ""},
		{errNoReplicas, ""},
	} {
		_, list := line(3, now)
		list[0].PollFailed(test.err, now.Add(time.Minute))
		list[0].End(nil)
		err, stale := list[2].Outage(now.Add(time.Minute))
		if test.says == "" && err != nil || test.says != "" && (err == nil ||
			!strings.Contains(err.Error(), test.says)) || stale {
			t.Errorf("%v: the others are told %v, stale %v", test.err, err, stale)
		}
		if list[1].pollNow != (test.says != "") {
			t.Errorf("%v: the next one polls at once: %v", test.err, list[1].pollNow)
		}
		list[1].Answered(true)
		if err, stale := list[2].Outage(now); err != nil || !stale {
			t.Errorf("behind an answer they are told %v, stale %v", err, stale)
		}
	}
}

// Others are no longer told that the lock is held once the first waiter's poll has had no answer
// for more than a second.
func TestOutageOfASilentPoll(t *testing.T) {
	now := time.Unix(1e9, 0)
	_, list := line(2, now)
	list[0].PollBegan(now)
	if err, _ := list[1].Outage(now.Add(maxSilence)); err != nil {
		t.Errorf("after a second: %v", err)
	}
	if err, _ := list[1].Outage(now.Add(maxSilence + 1)); err == nil {
		t.Error("after more than a second it is told nothing")
	}
	list[0].PollEnded()
	if err, _ := list[1].Outage(now.Add(time.Hour)); err != nil {
		t.Errorf("behind the end of the poll: %v", err)
	}
}

// The time of the last waiter expires in the moment in which a release gives it the lock: its queue
// is gone, and with it what was known of the upstream.
func TestOutageOfAQueueThatIsGone(t *testing.T) {
	now := time.Unix(1e9, 0)
	_, list := line(1, now)
	list[0].PollFailed(errors.New("lost"), now)
	list[0].End(nil)
	if err, stale := list[0].Outage(now); err != nil || stale {
		t.Errorf("%v, stale %v", err, stale)
	}
}

// Behind a poll that takes the lock, as many waiters as there were then are given it by releases
// before other proxies have a turn.
func TestTurnsBehindAPoll(t *testing.T) {
	now := time.Unix(1e9, 0)
	qs, list := line(3, now)
	list[0].Settle(script.Attempt{Token: 1}, nil)
	var kinds []string
	for token := int64(2); token < 6; token++ {
		list = append(list, another(qs, now))
		offer := qs.Of(list[0].ID()).Offer(names.Identity{}, true, now)
		kinds = append(kinds, offer.Kind)
		offer.End(Released{Done: true, Token: token, Given: 1}, now)
	}
	if want := []string{"next", "next", "fair", "next"}; !slices.Equal(kinds, want) {
		t.Errorf("releases offer %q, want %q", kinds, want)
	}
}

// Those behind the first share the lock with it, up to one that may not.
func TestWhoSharesWithTheFirst(t *testing.T) {
	now := time.Unix(1e9, 0)
	type joins struct {
		as        names.Identity
		owner     string
		exclusive bool
	}
	long := strings.Repeat("x", maxSharersTexts/2)
	for name, test := range map[string]struct {
		list   []joins
		shares int // behind the first
		stops  bool
	}{
		"all may":            {make([]joins, 3), 2, false},
		"one excludes":       {[]joins{{}, {}, {exclusive: true}, {}}, 1, true},
		"the first excludes": {[]joins{{exclusive: true}, {}}, 0, false},
		"another user":       {[]joins{{}, {as: names.Identity{User: "a"}}, {}}, 0, true},
		"long owners":        {[]joins{{}, {owner: long}, {owner: long}, {owner: "x"}}, 2, true},
		"too many":           {make([]joins, maxSharers+2), maxSharers, true},
	} {
		qs := New(&background.Ways{})
		var line *waitQueue
		for _, j := range test.list {
			w, _ := qs.Join(script.Request{Key: "job", Connection: "c", Number: "1", Owner: j.owner,
				Shared: !j.exclusive}, j.as, 0, now)
			line = qs.lineOf(w.ID())
		}
		list, behind := line.offerShared(now)
		if len(list) != test.shares || (behind != nil) != test.stops {
			t.Errorf("%s: %d share, another goes on waiting: %v", name, len(list), behind != nil)
		}
		if again, _ := line.offerShared(now); len(again) > 0 {
			t.Errorf("%s: %d are offered the lock twice", name, len(again))
		}
	}
}

// Only the first waiter's end makes the next one poll.
func TestAnEndInTheMiddle(t *testing.T) {
	now := time.Unix(1e9, 0)
	qs, list := line(3, now)
	qs.lineOf(list[0].ID()).heldShared = true
	list[1].End(nil)
	if list[0].pollNow || list[0].woken.Load() {
		t.Error("the first one polls, though another has left")
	}
	list[0].End(nil)
	if !list[2].pollNow || !list[2].woken.Load() {
		t.Error("the next one does not poll")
	}
}

// Foreign clients that ask for the lock again and again wake the first waiter once, who then polls
// often: each wake-up would put its poll off.
func TestForeignClientsWakeOnce(t *testing.T) {
	now := time.Unix(1e9, 0)
	qs, list := line(1, now)
	woken := 0
	for range 3 {
		qs.Of(list[0].ID()).ForeignAnswered(foreign.Take, false, false, now)
		if list[0].TakeWoken() {
			woken++
		}
	}
	if woken != 1 {
		t.Errorf("it is woken %d times", woken)
	}
}
