package main

import "golang.org/x/sys/unix"

// raiseFileLimit lets this process and those that it starts have as many files open as the system
// allows, and says how many.
func raiseFileLimit() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	limit.Cur = limit.Max
	// Set even if it stays the same: the runtime, which has raised it for this process alone, then
	// hands it on.
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		unix.Getrlimit(unix.RLIMIT_NOFILE, &limit)
	}
	return int(min(limit.Cur, 1<<30))
}
