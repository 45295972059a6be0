package main

import (
	"math/rand/v2"
	"time"
)

// asking says for how long a run asks for its lock while the proxy is away, because it is being
// restarted or replaced. It is pure: times are handed in.
type asking struct {
	within time.Duration // how long the proxy may be away
	wait   *seconds      // --wait
	ends   time.Time     // the end of that wait, if it has one
	away   time.Time     // since when the proxy is away
	asked  time.Time     // when the proxy was asked for the lock; zero if it was not reached
	met    bool          // it has been reached before
}

func newAsking(within time.Duration, wait *seconds, now time.Time) *asking {
	a := &asking{within: within, wait: wait, away: now}
	if wait != nil {
		a.ends = now.Add(time.Duration(*wait))
	}
	return a
}

// rest is what is left of the wait. It is at least a millisecond, since WAIT 0 waits forever.
func (a *asking) rest(now time.Time) seconds {
	if *a.wait == 0 {
		return 0
	}
	return seconds(max(a.ends.Sub(now).Truncate(time.Millisecond), time.Millisecond))
}

// answerBy is when LOCK must have been answered; zero is never.
func (a *asking) answerBy(now time.Time) time.Time {
	switch {
	case a.wait == nil:
		return now.Add(a.within)
	case *a.wait == 0:
		return time.Time{}
	}
	return now.Add(time.Duration(a.rest(now)) + a.within)
}

// connectBy is when a connection must be there. The rest of the patience is for finding out why it
// is not.
func (a *asking) connectBy() time.Time { return a.away.Add(a.within - a.explainWithin()) }

func (a *asking) explainWithin() time.Duration { return a.within / 6 }

// reached records that the proxy is there, and is about to be asked.
func (a *asking) reached(now time.Time) { a.asked, a.met = now, true }

// failed records that the proxy was not reached, or has ended the wait. It says whether to ask again,
// and after which pause: a different one each time, so that not all who wait come at once. A proxy
// that is lost long after it was asked has been there meanwhile.
func (a *asking) failed(now time.Time) (pause time.Duration, again bool) {
	if !a.asked.IsZero() && now.Sub(a.asked) > a.within/3 {
		a.away = now
	}
	a.asked = time.Time{}
	pause = time.Second/20 + rand.N(time.Second/2)
	return pause, now.Add(pause).Before(a.connectBy().Add(-a.within / 30))
}
