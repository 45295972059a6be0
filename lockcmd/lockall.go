package lockcmd

import (
	"slices"
	"time"

	"lockproxy/internal/names"
	"lockproxy/internal/resp"
	"lockproxy/lockcmd/failure"
	"lockproxy/lockcmd/keyname"
	"lockproxy/lockcmd/script"
)

// LOCKALL takes several locks or none. While it waits it holds none. It joins the queues of all its
// locks at the same moment, and asks for all of them when it is first in each: see script/all.lua.
// Other proxies see its place in each queue in which it is first, with the time at which it began
// to wait. So the earlier of two requests goes first, whichever locks they want, and no two wait
// for each other.

// allCall is one call of all.lua.
type allCall struct {
	script.Call
	lockRequests
	db      int
	polls   bool   // it takes the locks if it can
	compete []bool // foreign clients have been seen to take each of the locks
	askedAt time.Time
}

// claimRecords are what claimRecord is for a LOCK, of those locks that can be values.
func (t *allCall) claimRecords(answer script.Answer, err error) (keys []string) {
	_, foreign, err := t.AttemptAll(answer, err)
	said, _ := err.(script.ServerError)
	for i, r := range t.lockRequests {
		other := script.HasCode(said, "WRONGTYPE") || slices.Contains(foreign, int64(i+1))
		if other && !t.compete[i] {
			keys = append(keys, keyname.Record([]byte(keyname.Claim([]byte(r.Key)))))
		}
	}
	return keys
}

// beginTryAll makes a call of all.lua, with ModeCheck instead of ModeTry if others wait here for
// one of the locks. firstAt is its `first_at`. since is when the request began to wait, by the
// upstream's clock, ms; 0 if it has not. ends is Maker.Lock's. It fails in the hold-off after a
// failover.
func (l *locking) beginTryAll(
	c Client, rs lockRequests, mode, firstAt string, since, ends int64,
) (*allCall, error) {
	now := time.Now()
	t := &allCall{lockRequests: rs, db: c.As.DB, polls: mode == script.ModeFirst, askedAt: now}
	if held := l.heldOff(); held > 0 {
		return t, failure.HeldOffError(held)
	}
	r, compete := rs[0], false
	for _, r := range rs {
		theirs, waited, _ := l.queues.Of(names.Lock{DB: t.db, Key: r.Key}).BeforeTry(now)
		compete, t.compete = compete || theirs, append(t.compete, theirs)
		if mode == script.ModeTry && waited {
			mode = script.ModeCheck
		}
	}
	t.Call = l.Scripts.LockAll(rs, mode, firstAt, l.queues.WaitsAs(r.Key, compete, false), since,
		ends)
	return t, nil
}

// finishTryAll reads the answer, and those to GETs of what claimRecords says. If an error comes
// with a token, the caller must undo that, unless the connection had it before.
func (l *locking) finishTryAll(
	t *allCall, answer script.Answer, claims []resp.Value, err error,
) (script.Attempt, error) {
	a, foreign, err := t.AttemptAll(answer, err)
	a.AskedAt = t.askedAt
	if slices.ContainsFunc(claims, isRecord) {
		return script.Attempt{AskedAt: t.askedAt}, errUsedByOnce
	}
	if err != nil {
		return a, err
	}
	l.Clients.Ways.Took(t.lockRequests[0].Key, time.Since(a.AskedAt))
	if a.Token == 0 {
		l.Clients.Ways.Told(t.lockRequests[0].Key, a.Now)
		l.sawForeign(t.lockRequests, t.db, foreign, t.polls)
		return a, nil
	}
	if a.Renewed {
		return a, answer.Unconfirmed(t.Confirm, script.StillOwners)
	}
	return a, l.notConfirmed(&answer, t.Confirm)
}

// SawForeign notes which locks foreign clients hold, from 1 on. polled says that the request would
// have taken them.
func (l *locking) sawForeign(rs lockRequests, db int, which []int64, polled bool) {
	for _, i := range which {
		if i < 1 || i > int64(len(rs)) { // none of the script's answers
			continue
		}
		l.queues.Of(names.Lock{DB: db, Key: rs[i-1].Key}).SawForeign(polled, time.Now())
	}
}
