//go:build linux

package process

import (
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"lockproxy/internal/test/testredis"
)

// Start starts a program that ends with this process, however that ends. It is in a new process
// group: Ctrl-C is for the bench, which then ends its processes.
func Start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return testredis.StartProcess(cmd)
}

// onThread runs something on a thread that ends with it, so that it can change what a thread has of
// its own, as its network namespace. That is never the process's first thread, which Go cannot end,
// and whose network is what /proc/net and /proc/self/net show.
func onThread(do func() error) error {
	ended := make(chan error, 1)
	go func() { // ends with do, and its thread with it
		runtime.LockOSThread()
		if syscall.Gettid() == os.Getpid() {
			ended <- onThread(do) // while this one waits, no other goroutine gets its thread
			runtime.UnlockOSThread()
			return
		}
		ended <- do()
	}()
	return <-ended
}
