package socket

import (
	"syscall"
	"unsafe"
)

// announceEvery is of how many calls of one kind on one socket one goes through the scheduler.
// These calls keep the scheduler's monitor awake, which otherwise sleeps for up to a minute when
// the process has been idle. While all processors are busy, only the monitor polls the network and
// preempts a goroutine that has run for 10 ms.
const announceEvery = 64

func (h *half) read(fd uintptr, b []byte) (int, error) {
	if h.announces() {
		return syscall.Read(int(fd), b)
	}
	return call(syscall.SYS_RECVFROM, fd, b, 0)
}

func (h *half) write(fd uintptr, b []byte) (int, error) {
	if h.announces() {
		return syscall.Write(int(fd), b)
	}
	return call(syscall.SYS_SENDTO, fd, b, syscall.MSG_NOSIGNAL)
}

func (h *half) announces() bool {
	h.calls++
	return h.calls%announceEvery == 1
}

// call is recv(2) or send(2), unknown to the scheduler. They are a little cheaper than read(2) and
// write(2).
func call(number, fd uintptr, b []byte, flags uintptr) (int, error) {
	n, _, errno := syscall.RawSyscall6(number, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))),
		uintptr(len(b)), syscall.MSG_DONTWAIT|flags, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

func peek(fd uintptr, b []byte) (int, error) {
	return call(syscall.SYS_RECVFROM, fd, b, syscall.MSG_PEEK)
}
