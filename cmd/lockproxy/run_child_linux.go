package main

import "syscall"

// processAttributes makes the kernel kill the command if this process is killed: its lock is free
// from then on.
func processAttributes(group bool) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: group, Pdeathsig: syscall.SIGKILL}
}
