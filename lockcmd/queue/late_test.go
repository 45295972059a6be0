package queue

import (
	"errors"
	"testing"
	"time"

	"lockproxy/internal/names"
	"lockproxy/lockcmd/background"
	"lockproxy/lockcmd/script"
)

// A waiter's first question is answered after it was asked again. Whatever has happened meanwhile,
// the lock that comes with the answer is the waiter's, or is to be released: never both, never
// neither. The reply to its client does not change any more.
func TestLateAnswer(t *testing.T) {
	const late = 200
	lost := errors.New("lost")
	for what, c := range map[string]struct {
		meanwhile  func(w *Waiter)
		err        error
		has        int64 // the token that w has in the end
		isReleased bool
	}{
		"it still waits":                   {has: late},
		"it still waits, and gets nothing": {err: lost},
		"it has left, in vain": {
			meanwhile: func(w *Waiter) { w.End(nil) }, err: lost, isReleased: true,
		},
		"it was found by another":       {meanwhile: settled(late), has: late},
		"it has an earlier one":         {meanwhile: settled(100), has: late},
		"it has a later one":            {meanwhile: settled(300), has: 300},
		"it was refused":                {meanwhile: func(w *Waiter) { w.Refuse(lost) }, isReleased: true},
		"it has left":                   {meanwhile: func(w *Waiter) { w.End(nil) }, isReleased: true},
		"it was told of it":             {meanwhile: toldOf(late), has: late},
		"it was told of an earlier one": {meanwhile: toldOf(100), has: 100, isReleased: true},
		"it was told of a later one":    {meanwhile: toldOf(300), has: 300},
	} {
		qs := New(&background.Ways{})
		w, _ := qs.Join(script.Request{Key: "job"}, names.Identity{}, 0, time.Now())
		if c.meanwhile != nil {
			c.meanwhile(w)
		}
		a := attempt(late)
		if c.err != nil {
			a = script.Attempt{}
		}
		list := w.SettleLate(a, nil, c.err, c.err != nil)
		has := int64(0)
		if w.State().Has {
			has = w.Token
		}
		if len(list) > 0 && list[0].Token != a.Token { // 0 is whatever the request has taken
			t.Errorf("%s: token %d is to be released, not %d", what, list[0].Token, a.Token)
		}
		if has != c.has || len(list) > 0 != c.isReleased {
			t.Errorf("%s: it has %d, want %d; to be released: %v", what, has, c.has, list)
		}
	}
}

// A wait is refused while its question is under way, and the connection that it was sent on is lost
// before the wait's own command has noticed that it has ended. The question may have taken the lock
// all the same, so the end of the wait releases it.
func TestAnswerLostBeforeTheEnd(t *testing.T) {
	lost, as, now := errors.New("lost"), names.Identity{}, time.Now()
	qs := New(&background.Ways{})
	one, _ := qs.Join(script.Request{Key: "job"}, as, 0, now)
	one.Refuse(lost)
	all := qs.JoinAll([]script.Request{{Key: "a"}, {Key: "b"}}, as, 0, now)
	all.Refuse(lost)
	list := one.SettleLate(script.Attempt{}, nil, lost, true)
	list = append(list, all.Lead.SettleLate(script.Attempt{}, nil, lost, true)...)
	if len(list) > 0 {
		t.Errorf("%v is released before the waits have ended", list)
	}
	for what, w := range map[string]*Wait{"LOCK": one.Wait, "LOCKALL": all} {
		if !w.End(nil).Unknown {
			t.Errorf("%s: its end releases nothing", what)
		}
	}
}

func attempt(token int64) script.Attempt { return script.Attempt{Token: token} }

// settled has a poll give w a token, and toldOf has its client told so.
func settled(token int64) func(w *Waiter) {
	return func(w *Waiter) { w.Settle(attempt(token), nil) }
}

func toldOf(token int64) func(w *Waiter) {
	return func(w *Waiter) {
		w.Settle(attempt(token), nil)
		w.End(nil)
	}
}

// A late answer has given a LOCKALL its locks, and then a poll has taken them again: the earlier
// lease has ended, and its token would release nothing.
func TestALaterTokenOfALockAll(t *testing.T) {
	qs := New(&background.Ways{})
	rs := []script.Request{{Key: "a"}, {Key: "b"}}
	g := qs.JoinAll(rs, names.Identity{}, 0, time.Now())
	list := g.Lead.SettleLate(script.Attempt{Token: 5}, nil, nil, false)
	kept, err := g.Lead.Settle(script.Attempt{Token: 9}, nil)
	if len(list) > 0 || !kept || err != nil || g.Lead.Token != 9 {
		t.Errorf("%v is released, kept %v, %v, token %d", list, kept, err, g.Lead.Token)
	}
}
