//go:build !linux

package main

import "time"

// pauseExactly sleeps, as exactly as timers are here.
func pauseExactly(d time.Duration) { time.Sleep(d) }
