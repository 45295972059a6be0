package monotonic

import "time"

var began = time.Now().Add(-1) // so that Now is never 0

// Now returns for how many nanoseconds this process has run. It is never 0.
func Now() int64 { return positive(time.Since(began)) }

// Of returns what Now was at t, a result of time.Now.
func Of(t time.Time) int64 { return positive(t.Sub(began)) }

// positive allows for the clock of a bubble of testing/synctest, which begins in the year 2000.
func positive(ran time.Duration) int64 {
	if ran < 0 {
		ran += 1 << 62
	}
	return int64(ran)
}

// Since returns the time since Now returned then.
func Since(then int64) time.Duration { return time.Duration(Now() - then) }
