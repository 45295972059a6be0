package lockcmd

import (
	"context"
	"time"

	"lockproxy/internal/commands"
	"lockproxy/internal/foreign"
	"lockproxy/internal/resp"
)

// Foreign clients lock with SETNX recipes and know no LOCK. They and LOCK exclude each other by the
// timestamp at the key; see scripts/read.lua. But they poll, are in no queue, and some write before
// they know that they have lost. So:
//
//   - Where they compete for a lock, a release leaves the key free for all instead of handing it
//     over, and no waiter here takes it for a moment: the two kinds take turns. If they have had
//     more turns, as many hand-overs in a row make up for that.
//   - Where they compete, the first waiter polls when a release of theirs passes by, or the
//     upstream tells of one (keyTracking). If it does not, the waiter polls often.
//   - Now and then a release leaves the key free although none has been seen: a gap. Foreign
//     clients that do not use this proxy would never find it free otherwise.
//   - After LOCK has taken over a lock from an expired timestamp there is a grace period, in which
//     only the lock record counts, and the proxy repairs what late writes do to the timestamp.

const (
	// foreignMemory is how long foreign clients count as competing since one was last seen.
	foreignMemory = 5 * time.Second
	// maxForeign bounds the locks that are remembered for their foreign clients.
	maxForeign = 10000

	// How often the first waiter polls where they compete. When a release has left the key free,
	// the first of these passes before a waiter takes it.
	minForeignPoll = 15 * time.Millisecond
	maxForeignPoll = 25 * time.Millisecond

	// maxForeignTurns bounds the hand-overs in a row that make up for their turns.
	maxForeignTurns = 16

	// takeoverGrace is how long after a takeover the loser's write may still come.
	takeoverGrace = 2 * time.Second
)

// unit is what timestamps are written in. Foreign clients know only one of the two.
func (l *Locks) unit() string {
	if l.cfg.Seconds {
		return "s"
	}
	return "ms"
}

// foreignClients is what is known of foreign clients, by the lock. Its caller holds Locks.mu.
type foreignClients map[LockID]foreignSight

type foreignSight struct {
	seen  time.Time // when one was last seen
	freed time.Time // when a release here last left the key free for them
	turns int       // polls that found the lock theirs; hand-overs have not made up for them
}

// saw is for a command of a foreign client that competes for a lock.
func (f foreignClients) saw(id LockID, now time.Time) {
	if len(f) >= maxForeign {
		for old, sight := range f { // one that is over, otherwise any: it will be seen again
			delete(f, old)
			if now.Sub(sight.seen) < foreignMemory {
				break
			}
		}
	}
	sight := f[id]
	sight.seen = now
	f[id] = sight
}

// won is for a poll that has found the lock theirs.
func (f foreignClients) won(id LockID, now time.Time) {
	f.saw(id, now)
	sight := f[id]
	sight.turns = min(sight.turns+1, maxForeignTurns)
	f[id] = sight
}

// makeUp reports whether a release may hand the lock over although they compete: they have had it
// more often than the waiters here. It counts as one hand-over.
func (f foreignClients) makeUp(id LockID) bool {
	sight := f[id]
	if sight.turns == 0 {
		return false
	}
	sight.turns--
	f[id] = sight
	return true
}

// compete reports whether foreign clients have been seen at a lock lately.
func (f foreignClients) compete(id LockID, now time.Time) bool {
	sight, ok := f[id]
	if ok && now.Sub(sight.seen) > foreignMemory {
		delete(f, id)
		return false
	}
	return ok
}

// leftFree is for a release that has left a lock free: it is their turn, if they compete.
func (f foreignClients) leftFree(id LockID, now time.Time) {
	if f.compete(id, now) {
		sight := f[id]
		sight.freed = now
		f[id] = sight
	}
}

// haveTurn reports whether a lock has just been left free for them.
func (f foreignClients) haveTurn(id LockID, now time.Time) bool {
	return f.compete(id, now) && now.Sub(f[id].freed) < minForeignPoll
}

// turnOver is for a lock that one of them has taken since it was left free.
func (f foreignClients) turnOver(id LockID) {
	if sight, ok := f[id]; ok {
		sight.freed = time.Time{}
		f[id] = sight
	}
}

// foreignCompete is foreignClients.compete for a caller that does not hold mu.
func (l *Locks) foreignCompete(id LockID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.foreign.compete(id, time.Now())
}

// waitsAs is how this proxy waits for a lock, as the lock record names it.
func (l *Locks) waitsAs(foreignCompete bool) string {
	switch {
	case foreignCompete:
		return "1"
	case l.notifications.unsubscribed.Load():
		return "2"
	}
	return "0"
}

// WatchesForeign reports whether a command that releases or extends any lock of a foreign client
// matters to anybody.
func (l *Locks) WatchesForeign() bool { return l.Waiting() || l.foreignLocks.Any() }

// MayConcern reports whether any of the keys may be that of a lock for which clients wait, or which
// a foreign client is known to hold. It costs little.
func (l *Locks) MayConcern(keys [][]byte) bool {
	if !l.WatchesForeign() {
		return false
	}
	for _, key := range keys {
		if l.foreignLocks.MayKnow(key) || l.waitedKeys.May(key) {
			return true
		}
	}
	return false
}

// TakesForeign reports whether a script, called by EVAL or EVALSHA, can take a lock.
func (l *Locks) TakesForeign(args [][]byte) bool { return l.shapes.Takes(args) }

// ObserveForeign is for a request of a foreign client, whose command has a role. replied must be
// called with the head of its reply. It is nil if the request concerns no lock that matters here.
// ObserveForeign returns at once, and any goroutine may call it.
func (l *Locks) ObserveForeign(
	db int, by foreign.Client, role foreign.Role, args [][]byte, keys *commands.Keys,
) (replied func(resp.Head)) {
	var room [4]int
	r := foreign.Read(role, args, keys.Positions(args, room[:0]), l.shapes, time.Now())
	var ids []LockID
	for _, key := range r.Keys {
		id := LockID{db, string(key)}
		if r.Action.Takes() || l.waitedFor(id) || l.foreignLocks.Knows(foreign.ID(id)) {
			ids = append(ids, id)
		}
	}
	if ids == nil {
		return nil
	}
	r.Keys = nil // they are valid only now
	return func(h resp.Head) {
		outcome, now := r.Action.Outcome(h), time.Now()
		if outcome == foreign.Failed {
			return
		}
		for _, id := range ids {
			released := l.foreignLocks.Saw(foreign.ID(id), by, r, outcome, now)
			taken := r.Action.Takes() && outcome == foreign.Yes
			l.foreignAnswered(id, r.Action, taken, released, now)
		}
	}
}

func (l *Locks) waitedFor(id LockID) bool {
	if !l.Waiting() {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.queues[id] != nil
}

// foreignAnswered is for a foreign client's request about a lock that the upstream has accepted.
// If it can have taken the lock, the first waiter polls often from now on. If it has released the
// lock, or may have, it is the waiter's turn.
func (l *Locks) foreignAnswered(
	id LockID, action foreign.Action, taken, released bool, now time.Time,
) {
	if !l.Waiting() && !released && action != foreign.Touch {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.queues[id]
	if q == nil {
		if released || action == foreign.Touch {
			l.wakeDelayedLocked(id)
		}
		return
	}
	if action.Takes() || action == foreign.Touch {
		news := !l.foreign.compete(id, now)
		l.foreign.saw(id, now)
		if news {
			q.wakeFirst()
		}
	}
	if taken {
		l.foreign.turnOver(id)
	}
	maybe := action == foreign.Touch || action == foreign.Release // some scripts answer 0
	if released || maybe && q.touched(now) {
		q.pollNow()
	}
}

// ForeignLocks returns up to limit locks of foreign clients that this proxy has seen being taken,
// or asked for without success. The upstream may know better.
func (l *Locks) ForeignLocks(limit int) []foreign.Lock {
	return l.foreignLocks.List(limit, time.Now())
}

// repairTimes are the times after a takeover at which the timestamp is checked. The loser mostly
// writes within a millisecond, seldom much later.
var repairTimes = []time.Duration{
	3 * time.Millisecond, 10 * time.Millisecond, 30 * time.Millisecond, 80 * time.Millisecond,
	200 * time.Millisecond, 500 * time.Millisecond, time.Second, 1500 * time.Millisecond,
	takeoverGrace - 50*time.Millisecond,
}

// takeover is the grace period of one lock.
type takeover struct {
	as     Identity
	token  int64
	checks int    // how many have begun
	cancel func() // of the next
}

// startGrace repairs the timestamp of a lock that was taken over, as long as a foreign client that
// lost the race may replace it. It uses a background client: the holder's connection may be closed
// or busy. Another takeover starts it again.
func (l *Locks) startGrace(as Identity, id LockID, token int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if old := l.takeovers[id]; old != nil {
		if old.checks == 0 {
			return
		}
		old.cancel()
	}
	t := &takeover{as: as, token: token}
	l.takeovers[id] = t
	l.repairAfterLocked(repairTimes[0], id, t)
}

// repairAfterLocked begins the next check after a time. mu is held.
func (l *Locks) repairAfterLocked(pause time.Duration, id LockID, t *takeover) {
	t.cancel = l.timers.after(pause, func(ctx context.Context) {
		l.mu.Lock()
		t.checks++
		l.mu.Unlock()
		more := l.repair(ctx, id, t)
		l.mu.Lock()
		defer l.mu.Unlock()
		switch {
		case l.takeovers[id] != t: // taken over again
		case more && t.checks < len(repairTimes):
			l.repairAfterLocked(repairTimes[t.checks]-repairTimes[t.checks-1], id, t)
		default:
			delete(l.takeovers, id)
		}
	})
}

// repair runs repair.lua. more says whether to check again.
func (l *Locks) repair(ctx context.Context, id LockID, t *takeover) (more bool) {
	c := l.call(repairScript, id.Key, noFastPath, "")
	answer, err := l.background.on(ctx, t.as, id.Key, time.Now().Add(backgroundTimeout)).Eval(&c)
	ints, err := c.ints(1, answer, err)
	switch {
	case ctx.Err() != nil, err == nil && ints[0] == -1:
		return false
	case err != nil:
		l.log.Warn("cannot look after a lock while it settles",
			"key", id.Key, "token", t.token, "error", err)
	case ints[0] == 1:
		l.log.Info("put right the timestamp of a lock that a foreign client had lost and overwritten",
			"key", id.Key, "token", t.token)
	}
	return true
}
