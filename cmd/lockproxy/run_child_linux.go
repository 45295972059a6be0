package main

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// processAttributes makes the kernel kill the command if this process is killed: its lock is free
// from then on.
func processAttributes(group bool) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: group, Pdeathsig: syscall.SIGKILL}
}

// childState is what waitid(2) tells of a child.
type childState struct {
	signal, errno, code int32
	_                   [0]uintptr // aligns what follows
	pid, uid, status    int32
	_                   [128]byte
}

// look tells of a child without waiting, and takes none away that has ended.
func look(which, pid, changes int) (state childState, ok bool) {
	err := unix.Waitid(which, pid, (*unix.Siginfo)(unsafe.Pointer(&state)),
		changes|unix.WNOHANG|unix.WNOWAIT, nil)
	return state, err == nil && state.pid != 0
}

// stoppedByTerminal reports whether the kernel has stopped the command because it uses the
// terminal, whose foreground its group is not. It leaves the command's end to os/exec.
func (c *child) stoppedByTerminal() bool {
	state, stopped := look(unix.P_PID, c.cmd.Process.Pid, unix.WSTOPPED)
	by := syscall.Signal(state.status)
	return stopped && (by == syscall.SIGTTIN || by == syscall.SIGTTOU)
}

// reapOrphans takes away the children that have ended and are not the command: process 1 of a
// container inherits all whose parents have ended. It leaves the command's end to os/exec.
func (c *child) reapOrphans() {
	for {
		state, ended := look(unix.P_ALL, 0, unix.WEXITED)
		if !ended || int(state.pid) == c.cmd.Process.Pid {
			return
		}
		syscall.Wait4(int(state.pid), nil, syscall.WNOHANG, nil)
	}
}
