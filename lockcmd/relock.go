package lockcmd

import (
	"time"

	"lockproxy/internal/journal"
	"lockproxy/internal/monotonic"
	"lockproxy/internal/names"
	"lockproxy/internal/resp"
	"lockproxy/lockcmd/failure"
	"lockproxy/lockcmd/held"
	"lockproxy/lockcmd/queue"
	"lockproxy/lockcmd/script"
	"lockproxy/lockcmd/syntax"
)

// beginRelock is RELOCK.
func (l *locking) beginRelock(client Client, args [][]byte) *Step {
	o, err := syntax.ParseRelock(args[1:], l.cfg.MaxTimeout)
	if err != nil {
		return refusedStep(err)
	}
	id := names.Lock{DB: client.As.DB, Key: string(args[0])}
	switch o.Mode {
	case "SHARED":
		return l.beginShare(client, id, o)
	case "EXCLUSIVE":
		return l.beginExclude(client, id, o)
	}
	c, asked := l.Scripts.Relock(id, o.Proof.Value, o.Timeout, false), monotonic.Now()
	return &Step{Asks: Script{c}, Finish: func(answer script.Answer, err error) (Reply, *Step) {
		done, err := c.Ints(1, answer, err)
		return l.relocked(client, id, o, asked, done, answer.Unconfirmed(c.Confirm,
			script.UnsafeTimeout), err), nil
	}}
}

// relocked makes the reply to a RELOCK that leaves the token as it is.
func (l *locking) relocked(
	client Client, id names.Lock, o syntax.Relock, asked int64, done []int64, unsafe, err error,
) Reply {
	switch {
	case err != nil:
		return errorReply(err)
	case done[0] == 0:
		return valueReply(resp.Int(0))
	case unsafe != nil:
		return errorReply(unsafe)
	}
	l.renewals.Relocked(client.Holder, id, o.Proof, o.Timeout, asked)
	return valueReply(resp.Int(1))
}

// beginShare is RELOCK … SHARED: waiters that can share the lock join in the same script.
func (l *locking) beginShare(client Client, id names.Lock, o syntax.Relock) *Step {
	offer := l.queues.Of(id).Offer(client.As, l.heldOff() == 0, time.Now())
	c := l.Scripts.Share(l.releases.releaseOf(id, o.Proof, "-", offer), o.Timeout)
	asked := monotonic.Now()
	return &Step{Asks: Script{c}, Finish: func(answer script.Answer, err error) (Reply, *Step) {
		done, ends, err := l.releases.endOffer(offer, c, answer, err, func(done []int64, err error) {
			if err == nil && done[0] != 0 {
				l.renewals.Shares(client.Holder, id, o.Proof)
			}
		})
		reply := l.relocked(client, id, o, asked, done,
			answer.Unconfirmed(c.Confirm, script.UnsafeTimeout), err)
		return l.releases.undoAll(client.Holder, rejectedLocks(ends.Rejected), always(reply))
	}}
}

// beginExclude is RELOCK … EXCLUSIVE.
func (l *locking) beginExclude(client Client, id names.Lock, o syntax.Relock) *Step {
	if !o.Waits {
		return l.exclude(client, id, o, nil)
	}
	return watch(l.queues.Of(id), client, o.Wait, func(t *watching, last bool) *Step {
		if last { // and then nobody is behind it any more
			t.w.EndWatch()
			t = nil
		}
		return l.exclude(client, id, o, t)
	})
}

// errBothExclude is why a client does not wait until it is the only holder.
const errBothExclude = syntax.UsageError("DEADLOCK another holder of the lock waits already to be " +
	"the only one: release the lock, or ask without WAIT")

// exclude asks for it once. t, if it is not nil, waits for it. Meanwhile the lock is not renewed by
// the token that ends with it.
func (l *locking) exclude(client Client, id names.Lock, o syntax.Relock, t *watching) *Step {
	if rest := l.heldOff(); rest > 0 {
		if t != nil {
			t.w.EndWatch()
		}
		return refusedStep(failure.HeldOffError(rest))
	}
	h, r := client.Holder, client.Exclusive(id, o.Proof, o.Timeout)
	// The script does nothing once that lock has ended.
	until := h.Suspend(id, o.Proof)
	c, asked := l.Scripts.Exclude(id, o.Proof.Value, r, t != nil,
		l.queues.WaitsAs(id.Key, false, false)), time.Now()
	return &Step{Asks: Script{c}, Until: until, Finish: func(
		answer script.Answer, err error,
	) (Reply, *Step) {
		done, err := c.Ints(1, answer, err)
		goesOn := t != nil && err == nil && done[0] == script.OthersShare
		if t != nil && !goesOn {
			t.w.EndWatch()
		}
		lock := &held.Lock{Request: r, As: client.As}
		given := err == nil && done[0] > 0 && done[0] != o.Proof.Token()
		var missing error
		if given {
			lock.Token, missing = done[0], l.notConfirmed(&answer, c.Confirm)
		}
		// A session that must not keep the exclusive lock has lost its own, and is told.
		l.renewals.Unlocked(h, id, o.Proof, o.Proof.Token(), given && missing == nil)
		if given {
			l.releases.endExcluded(h, id, o.Proof)
		}
		switch {
		case err != nil:
			lock.Owner = "" // it may be released: its client cannot know the token
			l.releases.failed(h, lock, err)
			return errorReply(err), nil
		case goesOn:
			t.ask.in(queue.IdlePause())
			return Reply{}, t.sleep
		case done[0] == script.OtherExcludes:
			return errorReply(errBothExclude), nil
		case done[0] < 0:
			return valueReply(resp.Null), nil
		case !given:
			reply := l.relocked(client, id, o, monotonic.Of(asked), done,
				answer.Unconfirmed(c.Confirm, script.UnsafeTimeout), nil)
			if done[0] > 0 && reply.Err == nil {
				reply.Int = done[0]
			}
			return reply, nil
		}
		a := script.Attempt{Token: lock.Token, Given: 1, Exclusive: true, AskedAt: asked}
		if missing != nil {
			return l.failed(client, lockRequests{r}, a, missing)
		}
		return l.acquired(h, []*held.Lock{lock}, a), nil
	}}
}

// endExcluded notes that a shared lock has become exclusive: its token has ended.
func (l *releases) endExcluded(by *held.Holder, id names.Lock, p script.Proof) {
	if ended, _ := l.seen.registry.Remove(id, p, p.Token()); ended != nil {
		l.seen.observeEnd(journal.Released, ended)
		l.sessions.Released(ended, held.LostBy("made exclusive with its token by "+by.Addr))
	}
}
