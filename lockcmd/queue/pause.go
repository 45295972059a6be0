package queue

import (
	"math/rand/v2"
	"time"
)

// How often the first waiter polls. It is notified of LOCK's releases, but not of a DEL or a
// foreign client's release, and a message may be lost.
const (
	minPoll = 210 * time.Millisecond
	MaxPoll = 245 * time.Millisecond
)

// jitter returns a duration between lo and hi.
func jitter(lo, hi time.Duration) time.Duration { return lo + rand.N(hi-lo) }

// IdlePause is the time to the next poll of one that has not seen the lock.
func IdlePause() time.Duration { return jitter(minPoll, MaxPoll) }
