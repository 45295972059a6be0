package lockcmd

import (
	"lockproxy/lockcmd/held"
	"lockproxy/lockcmd/queue"
	"lockproxy/lockcmd/script"
)

// rejectedLock is a lock that its client must not get, and that is to be released.
type rejectedLock struct {
	*held.Lock
	waiter *queue.Waiter // to tell and signal then; nil if none waits for that
}

// rejectedLocks are what waiters were given that they must not keep.
func rejectedLocks(list []queue.Handed) (locks []rejectedLock) {
	for _, g := range list {
		locks = append(locks, rejectedLock{lockOf(g.Waiter, g.Token), g.Waiter})
	}
	return locks
}

// lockOf is the lock that w was given, or with token 0 may have been given.
func lockOf(w *queue.Waiter, token int64) *held.Lock {
	return &held.Lock{Request: w.Request, As: w.As, Token: token}
}

// undoAll is undo for a command that has its reply then.
func (l *releases) undoAll(
	by *held.Holder, list []rejectedLock, reply func(undone bool) Reply,
) (Reply, *Step) {
	return l.undo(by, list, true, func(undone bool) (Reply, *Step) { return reply(undone), nil })
}

// undo releases locks one after the other, and offers them to no waiter. Then the command of the
// connection by (nil for none) goes on: until its client hears of it, the locks are free again.
// Otherwise, after a release that has failed, undone is false, and that goes on by itself.
func (l *releases) undo(
	by *held.Holder, list []rejectedLock, undone bool, then func(undone bool) (Reply, *Step),
) (Reply, *Step) {
	if len(list) == 0 {
		return then(undone)
	}
	lock := list[0]
	r := l.beginRelease(by, lock.ID(), lock.As, lock.ReleaseProof(), false)
	return Reply{}, &Step{Asks: Script{&r.Call}, Finish: func(
		answer script.Answer, err error,
	) (Reply, *Step) {
		_, _, err = l.finishRelease(r, answer, err) // it names no waiter
		if err != nil {
			l.startRelease(lock.Lock, func() {})
		}
		if lock.waiter != nil {
			if err != nil {
				lock.waiter.NotUndone()
			}
			lock.waiter.Signal()
		}
		return l.undo(by, list[1:], undone && err == nil, then)
	}}
}

// always is the reply whether all was undone or not.
func always(reply Reply) func(undone bool) Reply { return func(bool) Reply { return reply } }

// startAbandoned begins to release what was given to waiters that have left.
func (l *releases) startAbandoned(ends queue.Ends) {
	for _, g := range ends.Abandoned {
		if lock := lockOf(g.Waiter, g.Token); g.Token == 0 {
			l.releaseTwice(lock, g.MayRunUntil())
		} else {
			l.startRelease(lock, func() {})
		}
	}
}

// requestsOf are what waiters ask for.
func requestsOf(list []*queue.Waiter) (rs []script.Request) {
	for _, w := range list {
		rs = append(rs, w.Asks())
	}
	return rs
}

// offersOf are the requests of waiters that are offered a shared lock together with one before
// them. The one behind them, if any, is passed as if it wanted the lock for itself: it gets
// nothing.
func offersOf(list []*queue.Waiter, behind *queue.Waiter) (rs []script.Request) {
	rs = requestsOf(list)
	if behind != nil {
		r := behind.Request
		r.Shared = false
		rs = append(rs, r)
	}
	return rs
}
