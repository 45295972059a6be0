package main

import (
	"time"

	"golang.org/x/sys/unix"
)

// pauseExactly sleeps, to some microseconds. Its caller has a thread that it does not share.
func pauseExactly(d time.Duration) {
	unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) // otherwise the kernel adds up to 50 µs
	pause := unix.NsecToTimespec(d.Nanoseconds())
	unix.Nanosleep(&pause, nil)
}
