//go:build linux

package process

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// starts runs process starts on one thread that lives as long as this process: the kernel sends a
// child its death signal when the thread that started it ends.
var starts = sync.OnceValue(func() chan<- func() {
	todo := make(chan func())
	go func() { // lives as long as the process, on purpose
		runtime.LockOSThread()
		for do := range todo {
			do()
		}
	}()
	return todo
})

func startOnThread(cmd *exec.Cmd) (err error) {
	done := make(chan struct{})
	starts() <- func() {
		err = cmd.Start()
		close(done)
	}
	<-done
	return err
}

// Start starts a program that ends with this process, however that ends. Ctrl-C doesn't reach it.
func Start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = ownGroup()
	return startOnThread(cmd)
}

// ownGroup puts a process into a new process group: Ctrl-C is for the bench, which then ends its
// processes. If the bench is killed, so is the process.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
