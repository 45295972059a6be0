//go:build linux

package process

import (
	"os"
	"syscall"
	"testing"
)

// A thread that was in the network namespace of a Machine is never used again. Go cannot end the
// first one: it would stay there, and /proc/net would show that network for as long as the process
// lives.
func TestFirstThreadIsNotTaken(t *testing.T) {
	for range 1000 { // without the rule it was taken within the first 20
		onThread(func() error {
			if syscall.Gettid() == os.Getpid() {
				t.Error("it runs on the process's first thread")
			}
			return nil
		})
		if t.Failed() {
			return
		}
	}
}
