// Package monotonic tells times that no step of the machine's clock moves, as numbers that fit into an atomic.Int64.
package monotonic

import "time"

var began = time.Now().Add(-1) // so that Now is never 0

// Now is how many nanoseconds this process has run for, more than 0. Only differences mean something.
func Now() int64 { return int64(time.Since(began)) }

// Of is what Now was at t, which time.Now has returned.
func Of(t time.Time) int64 { return int64(t.Sub(began)) }

// Since is the time since Now was then.
func Since(then int64) time.Duration { return time.Duration(Now() - then) }
