package testredis

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
)

// memoryFiles is a file system in memory, where there is one. Disks are slow now and then.
const memoryFiles = "/dev/shm"

// enoughMemory is how much must be free in memoryFiles: containers often have 64 MiB there, which
// the files of many servers could fill.
const enoughMemory = 1 << 30

const dirPrefix = "lockproxy-test-"

// serverDir is a directory for a server's files, which is removed with the test.
func serverDir(t testing.TB) string {
	t.Helper()
	if !hasMemoryFiles() {
		return t.TempDir()
	}
	dir, lock, err := lockedDir(memoryFiles)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		os.RemoveAll(dir)
		lock.Close()
	})
	return dir
}

var hasMemoryFiles = sync.OnceValue(func() bool {
	var free syscall.Statfs_t
	if syscall.Statfs(memoryFiles, &free) != nil ||
		uint64(free.Bavail)*uint64(free.Bsize) < enoughMemory {
		return false
	}
	sweep(memoryFiles)
	return true
})

// lockedDir makes a directory in parent that sweep leaves alone as long as lock is open.
func lockedDir(parent string) (dir string, lock *os.File, err error) {
	for {
		if dir, err = os.MkdirTemp(parent, dirPrefix); err != nil {
			return "", nil, err
		}
		lock, err = lockDir(dir)
		// Another process's sweep can be faster than this lock.
		swept := errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.EWOULDBLOCK)
		if !swept {
			return dir, lock, err
		}
	}
}

// lockDir locks a directory. It fails if that is locked already, or no longer there.
func lockDir(dir string) (*os.File, error) {
	lock, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
		_, err = os.Stat(dir)
	}
	if err != nil {
		lock.Close()
		return nil, err
	}
	return lock, nil
}

// sweep removes the directories that processes that were killed have left in parent.
func sweep(parent string) {
	dirs, _ := filepath.Glob(filepath.Join(parent, dirPrefix+"*"))
	for _, dir := range dirs {
		if lock, err := lockDir(dir); err == nil {
			os.RemoveAll(dir)
			lock.Close()
		}
	}
}
