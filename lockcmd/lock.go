package lockcmd

import (
	"fmt"
	"slices"
	"time"

	"lockproxy/internal/names"
	"lockproxy/internal/resp"
	"lockproxy/lockcmd/failure"
	"lockproxy/lockcmd/held"
	"lockproxy/lockcmd/hints"
	"lockproxy/lockcmd/keyname"
	"lockproxy/lockcmd/queue"
	"lockproxy/lockcmd/script"
	"lockproxy/lockcmd/search"
	"lockproxy/lockcmd/syntax"
)

// tryCall is one call of lock.lua, or of all.lua.
type tryCall struct {
	script.Call
	lockRequests
	trial
	db      int
	compete uint64 // a bit for each lock: foreign clients have been seen to take it
	askedAt time.Time
}

// trial is how locks are asked for.
type trial struct {
	all    bool // by all.lua
	mode   string
	ends   int64            // Maker.Lock's
	others []script.Request // that wait behind a LOCK and can be given its shared lock, too
	tracks bool             // Queues.WaitsAs's
	// firstAt is all.lua's. since is when a LOCKALL began to wait, by the upstream's clock, ms; 0
	// if it has not.
	firstAt string
	since   int64
}

// id is one of the locks.
func (t *tryCall) id(i int) names.Lock { return names.Lock{DB: t.db, Key: t.lockRequests[i].Key} }

// locking takes locks.
type locking struct {
	*common
	queues   *queue.Queues
	seen     *observed
	releases *releases
	renewals *held.Renewals
	graces   *graces
	digits   digitNames
}

// waits waits for locks.
type waits struct {
	*locking
	listener  *hints.Listener
	deadlocks *search.Deadlocks
}

// attempted goes on with what a script has found: another client's lock, or an error.
type attempted = func(script.Attempt, error) (Reply, *Step)

// beginTry makes a call of lock.lua or all.lua. It fails in the hold-off after a failover. LOCK and
// LOCKALL without WAIT take no lock for which clients wait here.
func (l *locking) beginTry(db int, rs lockRequests, how trial) (*tryCall, error) {
	t := &tryCall{lockRequests: rs, trial: how, db: db, askedAt: time.Now()}
	if held := l.heldOff(); held > 0 {
		return t, failure.HeldOffError(held)
	}
	mode, behind := t.mode, int64(0)
	for i := range rs {
		compete, waited, allSince := l.queues.Of(t.id(i)).BeforeTry(t.askedAt)
		if compete {
			t.compete |= 1 << i
		}
		if behind = allSince; waited && t.mode == script.ModeTry {
			mode, behind = script.ModeCheck, 0
		}
	}
	waits := l.queues.WaitsAs(rs[0].Key, t.compete != 0, t.tracks)
	if t.all {
		t.Call = l.Scripts.LockAll(rs, mode, t.firstAt, waits, t.since, t.ends)
	} else {
		t.Call = l.Scripts.Lock(rs[0], mode, waits, behind, t.others, t.ends)
	}
	return t, nil
}

// finishTry reads the answer, as lock.lua and all.lua describe it. used says that there is what
// claimRecords says. If an error comes with a token, the caller must undo that, unless the
// connection had it before.
func (l *locking) finishTry(
	t *tryCall, answer script.Answer, used bool, err error,
) (script.Attempt, error) {
	a, err := t.Attempt(answer, err)
	a.AskedAt = t.askedAt
	if used {
		return script.Attempt{AskedAt: t.askedAt}, errUsedByOnce // no foreign client has it
	}
	if err != nil {
		return a, err
	}
	key := t.lockRequests[0].Key
	l.Clients.Ways.Took(key, time.Since(a.AskedAt))
	for _, i := range a.ForeignAt {
		l.queues.Of(t.id(i)).SawForeign(t.all && t.mode == script.ModeFirst, time.Now())
	}
	if a.Token == 0 && a.Now != 0 {
		l.Clients.Ways.Told(key, a.Now)
	}
	if a.Made || a.Token == 0 {
		return a, nil
	}
	if a.Renewed {
		return a, answer.Unconfirmed(t.Confirm, script.StillOwners)
	}
	return a, l.notConfirmed(&answer, t.Confirm)
}

// errUsedByOnce is why there is no lock at the key of a value that DONE has stored.
const errUsedByOnce = script.ServerError("WRONGTYPE Key is used by ONCE: " +
	"LOCK needs a name of its own")

// claimRecords are the keys to look at if a LOCK or LOCKALL has found what LOCK has not written,
// unless foreign clients have been seen to take the lock: the records of the claims to make the
// values with these names, if ONCE has lately been asked for those.
func (t *tryCall) claimRecords(answer script.Answer, err error) (keys []string) {
	a, err := t.Attempt(answer, err)
	said, _ := err.(script.ServerError)
	for i, r := range t.lockRequests {
		other := script.HasCode(said, "WRONGTYPE") ||
			a.Token == 0 && slices.Contains(a.ForeignAt, i)
		if other && !r.Once && t.compete&(1<<i) == 0 {
			keys = append(keys, keyname.Record([]byte(keyname.Claim([]byte(r.Key)))))
		}
	}
	return keys
}

// tryStep tries once to take locks, and goes on with then.
func (l *locking) tryStep(c Client, rs lockRequests, all bool, then attempted) *Step {
	t, held := l.beginTry(c.As.DB, rs, trial{mode: script.ModeTry, all: all})
	if held != nil {
		return &Step{Finish: func(script.Answer, error) (Reply, *Step) { return then(script.Attempt{}, held) }}
	}
	return &Step{Asks: Script{&t.Call}, Finish: func(
		answer script.Answer, err error,
	) (Reply, *Step) {
		return l.took(t, answer, err, then)
	}}
}

// took goes on with what the answer to a call says, and where it can be the claim to a value, what
// that is.
func (l *locking) took(
	t *tryCall, answer script.Answer, err error, then attempted,
) (Reply, *Step) {
	return l.lookForClaims(t.claimRecords(answer, err), func(claims []resp.Value) (Reply, *Step) {
		return then(l.finishTry(t, answer, slices.ContainsFunc(claims, isRecord), err))
	})
}

// lookForClaims reads the records of claims, if there are any, and goes on with then.
func (l *locking) lookForClaims(
	keys []string, then func(claims []resp.Value) (Reply, *Step),
) (Reply, *Step) {
	if len(keys) == 0 {
		return then(nil)
	}
	look := Commands{Reads: true}
	for _, key := range keys {
		look.List = append(look.List, wordsOf("GET", key))
	}
	return Reply{}, &Step{Asks: look, Finish: func(a script.Answer, failed error) (Reply, *Step) {
		var claims []resp.Value
		for i := 0; failed == nil && i < len(a.Raw); i++ {
			claim, _ := resp.ParseValue(a.Raw[i])
			claims = append(claims, claim)
		}
		return then(claims)
	}}
}

// isRecord reports whether a GET of a claim's record has found one.
func isRecord(claim resp.Value) bool { return claim.Type == '$' && !claim.IsNull() }

// permit refuses a session lock if there are too many.
func (l *locking) permit(o syntax.Lock) error {
	if o.Session && l.renewals.Sessions.Full() {
		return syntax.UsageError(fmt.Sprintf("ERR this proxy renews %d session locks already: "+
			"lock without SESSION, or through another proxy", held.MaxSessions))
	}
	return nil
}

// tried makes the reply to a LOCK or LOCKALL without WAIT. If it has locks that its client must not
// get, further steps release these.
func (l *locking) tried(c Client, rs lockRequests, a script.Attempt, err error) (Reply, *Step) {
	if err == nil && a.Token != 0 {
		return l.acquired(c.Holder, rs.locks(c.As, a.Token), a), nil
	}
	l.seen.observeRefused(names.Lock{DB: c.As.DB, Key: rs[0].Key}, err)
	if err == nil {
		return valueReply(resp.Null), nil
	}
	return l.failed(c, rs, a, err)
}

// failed makes the reply to a LOCK or LOCKALL that has failed with err. It releases what that has
// taken, and what it may have taken.
func (l *locking) failed(c Client, rs lockRequests, a script.Attempt, err error) (Reply, *Step) {
	var undo []rejectedLock
	for _, lock := range rs.locks(c.As, a.Token) {
		switch {
		case a.Token == 0:
			l.releases.failed(c.Holder, lock, err)
		case !a.Before:
			undo = append(undo, rejectedLock{Lock: lock})
		}
	}
	return l.releases.undoAll(c.Holder, undo, func(undone bool) Reply {
		if !undone {
			return waitFailed(failure.NotUndone(err))
		}
		return waitFailed(err)
	})
}

// lockRequests are the locks of one LOCK or LOCKALL.
type lockRequests []script.Request

func (rs lockRequests) locks(as names.Identity, token int64) (list []*held.Lock) {
	for _, r := range rs {
		list = append(list, &held.Lock{Request: r, As: as, Token: token})
	}
	return list
}

// acquired records locks that h has acquired by one command, and makes the reply.
func (l *locking) acquired(h *held.Holder, list []*held.Lock, a script.Attempt) Reply {
	for _, lock := range list {
		if lock.Shared = lock.Shared && !a.Exclusive; lock.Shared && a.Renewed {
			l.seen.registry.KeepID(lock)
		}
		l.recordAcquired(h, lock, a)
	}
	reply := valueReply(resp.Int(a.Token))
	if !a.Before {
		reply.Given, list[0].With = list[0], list[1:]
	}
	return reply
}

// recordAcquired records a lock that h has acquired.
func (l *locking) recordAcquired(h *held.Holder, lock *held.Lock, a script.Attempt) {
	lock.TakenBy(h, a.AskedAt)
	l.queues.Of(lock.ID()).Changed()
	l.renewals.Hold(h, lock)
	for _, earlier := range l.seen.observeAcquired(lock, a) {
		l.renewals.Sessions.Verify(earlier, held.Loss{})
	}
	if a.TakenOver {
		l.graces.start(lock.As, lock.ID(), a.Token)
	}
}

// waitFailed is the reply to a wait that ended with an error.
func waitFailed(err error) Reply {
	if unblocked, ok := err.(failure.UnblockedError); ok && !bool(unblocked) {
		return valueReply(resp.Null)
	}
	return errorReply(err)
}
