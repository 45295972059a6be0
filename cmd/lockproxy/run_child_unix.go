//go:build unix && !linux

package main

import "syscall"

// processAttributes: only Linux can end the command when this process is killed.
func processAttributes(group bool) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: group}
}

// stoppedByTerminal: only Linux tells, without taking the command's end from os/exec.
func (c *child) stoppedByTerminal() bool { return false }

// reapOrphans: only in containers, which are Linux, is there something to do.
func (c *child) reapOrphans() {}
