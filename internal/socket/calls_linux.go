package socket

import (
	"syscall"
	"unsafe"
)

// announceEvery: of so many calls of one kind on one socket, one goes by way of the scheduler. That
// keeps its watch awake, which otherwise sleeps for up to a minute when the process has been idle.
// While all processors are busy, only the watch polls the network and preempts a goroutine that has
// run for 10 ms.
const announceEvery = 64

func (h *half) read(fd uintptr, b []byte) (int, error) {
	if h.announces() {
		return syscall.Read(int(fd), b)
	}
	return call(syscall.SYS_RECVFROM, fd, b)
}

func (h *half) write(fd uintptr, b []byte) (int, error) {
	if h.announces() {
		return syscall.Write(int(fd), b)
	}
	return call(syscall.SYS_SENDTO, fd, b)
}

func (h *half) announces() bool {
	h.calls++
	return h.calls%announceEvery == 1
}

// call is recv(2) or send(2), unknown to the scheduler. They are a little cheaper than read(2) and
// write(2).
func call(number, fd uintptr, b []byte) (int, error) {
	n, _, errno := syscall.RawSyscall6(number, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))),
		uintptr(len(b)), syscall.MSG_DONTWAIT|syscall.MSG_NOSIGNAL, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

func (h *half) peek(fd uintptr, b []byte) (int, error) {
	n, _, errno := syscall.RawSyscall6(syscall.SYS_RECVFROM, fd,
		uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)),
		syscall.MSG_PEEK|syscall.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
