package main

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// child is the command that runs under a lock, with what it starts.
type child struct {
	group bool // it leads its own process group, and signals go to all of that

	cmd   *exec.Cmd
	ended chan struct{} // closed when the command itself has ended
}

// start starts the command. The error is that of finding or executing it.
func (c *child) start(argv, env []string, stdout, stderr io.Writer) error {
	c.cmd = exec.Command(argv[0], argv[1:]...)
	c.cmd.Env = env
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = os.Stdin, stdout, stderr
	c.cmd.SysProcAttr = processAttributes(c.group)
	c.ended = make(chan struct{})
	started := make(chan error)
	go func() { // ends with the command; watch waits for that
		// the kernel ties the end of the command to that of this thread, see processAttributes
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := c.cmd.Start()
		started <- err
		if err == nil {
			c.cmd.Wait() // its error is in ProcessState
			close(c.ended)
		}
	}()
	return <-started
}

// signal sends to the command and, if it has a group, to all in it. It is no error if they have
// ended.
func (c *child) signal(sig syscall.Signal) {
	pid := c.cmd.Process.Pid
	if c.group {
		pid = -pid
	} else if c.hasEnded() { // the number may be another's by now
		return
	}
	syscall.Kill(pid, sig)
}

func (c *child) hasEnded() bool {
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}

// groupGone returns when nothing of the command's group runs any more, or at the deadline. There is
// no signal for the end of a process that isn't one's own child, so it looks every few
// milliseconds; this happens only once a lock is lost.
func (c *child) groupGone(deadline time.Time) {
	for c.group && time.Now().Before(deadline) {
		// as process 1 of a container this one inherits them
		syscall.Wait4(-c.cmd.Process.Pid, nil, syscall.WNOHANG, nil)
		if err := syscall.Kill(-c.cmd.Process.Pid, 0); errors.Is(err, syscall.ESRCH) {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// status is the command's exit status as a shell would give it; it has ended.
func (c *child) status() int {
	state := c.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if state.Signaled() {
		return exitSignal + int(state.Signal())
	}
	return state.ExitStatus()
}
