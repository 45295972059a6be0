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

// stoppedByTerminal reports, once for each time, whether the kernel has stopped the command because
// it uses the terminal, whose foreground its group is not. It leaves the command's end to os/exec.
func (c *child) stoppedByTerminal() bool {
	var info struct {
		signal, errno, code int32
		_                   [0]uintptr // aligns what follows
		pid, uid, status    int32
		_                   [128]byte
	}
	err := unix.Waitid(unix.P_PID, c.cmd.Process.Pid, (*unix.Siginfo)(unsafe.Pointer(&info)),
		unix.WSTOPPED|unix.WNOHANG, nil)
	by := syscall.Signal(info.status)
	return err == nil && info.pid != 0 && (by == syscall.SIGTTIN || by == syscall.SIGTTOU)
}
