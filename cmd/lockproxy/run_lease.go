package main

import "time"

// lease is how long a lock can be trusted without asking: timeout from before it was last asked
// for, by this process's monotonic clock. The upstream counts from later, so it keeps the lock at
// least as long. It is pure: times are handed in.
type lease struct {
	timeout time.Duration
	until   time.Time // the end of what has been proven
	last    time.Time // when it ends at the latest (--max); zero is never
	asked   time.Time // of the question that is not answered yet; zero without one
	next    time.Time // when to ask again
}

func newLease(timeout time.Duration, asked time.Time) lease {
	l := lease{timeout: timeout}
	l.renewed(asked)
	return l
}

// renewed records that a question of that time was answered with yes.
func (l *lease) renewed(asked time.Time) {
	l.until = asked.Add(l.timeout)
	l.asked = time.Time{}
	l.next = asked.Add(l.timeout / 4)
}

// failed records that the question was answered with neither yes nor no.
func (l *lease) failed(now time.Time) {
	l.asked = time.Time{}
	l.next = now.Add(min(max(l.timeout/20, 5*time.Millisecond), time.Second))
}

// killBy is when what still runs has to be killed so that it has ended when the lease is over: on a
// busy machine a timer and a signal come late.
func (l *lease) killBy() time.Time {
	return l.end().Add(-min(l.timeout/20, 250*time.Millisecond))
}

// end is when the lock can be another's.
func (l *lease) end() time.Time {
	if l.reachesLast() {
		return l.last
	}
	return l.until
}

// reachesLast reports whether --max ends the lock, and not an answer that is missing.
func (l *lease) reachesLast() bool { return !l.last.IsZero() && l.last.Before(l.until) }

// endBy is when the command must get SIGTERM, given how long it may take to end.
func (l *lease) endBy(killAfter time.Duration) time.Time {
	return l.killBy().Add(-min(killAfter, l.timeout/3))
}
