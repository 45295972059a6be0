package busypoll

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// prepare returns how to look for what has come, and how to let other processes run; nil if it can't be had.
func prepare() (poll func() bool, yield func()) {
	if runtime.GOMAXPROCS(0) != 1 || rationed("/proc/self/cgroup", "/sys/fs/cgroup") {
		return nil, nil
	}
	fd, ok := schedulersEpoll()
	if !ok {
		return nil, nil
	}
	return func() bool { return readable(fd) }, func() { syscall.RawSyscall(syscall.SYS_SCHED_YIELD, 0, 0, 0) }
}

// schedulersEpoll finds the epoll instance by which Go's scheduler waits for the network, which Go doesn't tell: the one that has something to
// say when something comes for a goroutine of ours.
func schedulersEpoll() (fd int, ok bool) {
	links, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		return 0, false
	}
	for _, link := range links {
		if to, err := os.Readlink(link); err != nil || to != "anon_inode:[eventpoll]" {
			continue
		}
		if fd, err = strconv.Atoi(filepath.Base(link)); err == nil && isSchedulers(fd) {
			return fd, true
		}
	}
	return 0, false
}

// isSchedulers tries it: on one processor nothing takes what has come while this goroutine runs.
func isSchedulers(fd int) bool {
	r, w, err := os.Pipe()
	if err != nil {
		return false
	}
	defer r.Close()
	defer w.Close()
	out, err := w.SyscallConn()
	if err != nil {
		return false
	}
	for range 100 {
		time.Sleep(time.Millisecond) // the scheduler takes what else has come
		if readable(fd) {
			continue
		}
		says := false
		err := out.Control(func(pipe uintptr) {
			syscall.RawSyscall(syscall.SYS_WRITE, pipe, uintptr(unsafe.Pointer(unsafe.StringData("x"))), 1)
			says = readable(fd)
		})
		if err != nil || says {
			return says
		}
		r.Read(make([]byte, 1)) // its watchdog was quicker, or it is another's
	}
	return false
}

// readable reports whether an epoll instance has something to say. It takes nothing of it.
func readable(fd int) bool {
	p := struct {
		fd              int32
		events, revents int16
	}{fd: int32(fd), events: 1} // POLLIN
	timeout := syscall.Timespec{}
	n, _, _ := syscall.RawSyscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(&p)), 1, uintptr(unsafe.Pointer(&timeout)), 0, 0, 0)
	return n == 1
}

// rationed reports whether the control group of the process, or one that it is in, has a quota of processor time (version 2 of control groups;
// of version 1, only where the process sees its own group as the root, as in a container).
func rationed(own, root string) bool {
	if quota, err := os.ReadFile(filepath.Join(root, "cpu/cpu.cfs_quota_us")); err == nil && !strings.HasPrefix(string(quota), "-1") {
		return true
	}
	text, _ := os.ReadFile(own)
	for line := range strings.Lines(string(text)) {
		path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::")
		for ; ok; path = filepath.Dir(path) {
			limit, err := os.ReadFile(filepath.Join(root, path, "cpu.max"))
			if err == nil && !strings.HasPrefix(string(limit), "max") {
				return true
			}
			if path == "/" || path == "." {
				break
			}
		}
	}
	return false
}
