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

// Start starts a program that ends with this process, however that ends. It is in a new process
// group: Ctrl-C is for the bench, which then ends its processes.
func Start(cmd *exec.Cmd) (err error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	done := make(chan struct{})
	starts() <- func() {
		err = cmd.Start()
		close(done)
	}
	<-done
	return err
}
