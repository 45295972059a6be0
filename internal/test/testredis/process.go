package testredis

import (
	"os/exec"
	"runtime"
	"sync"
)

// StartProcess starts a command that the kernel ends with this process, however this ends, where
// it can do so.
func StartProcess(cmd *exec.Cmd) error {
	endWithParent(cmd)
	started := make(chan error, 1)
	starter() <- func() { started <- cmd.Start() }
	return <-started
}

// starter takes what starts a process, and does it on a thread that lasts as long as this process:
// Linux ends children with the thread that started them, and other threads can end sooner.
var starter = sync.OnceValue(func() chan<- func() {
	starts := make(chan func())
	go func() { // as long as the process
		runtime.LockOSThread()
		for start := range starts {
			start()
		}
	}()
	return starts
})
