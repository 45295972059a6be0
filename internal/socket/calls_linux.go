package socket

import (
	"syscall"
	"unsafe"
)

// announceEvery is how many calls of one kind on one socket there are to one that the scheduler is told of. Its watch sleeps when the
// process has been idle, until it is told of a call or for as long as a minute; only while it is awake does it look for what has come on the
// network when all processors are busy, and take a processor from who has had it for 10 ms.
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

// call is recv(2) or send(2) without a word to the scheduler. They are a little cheaper than read and write, which are for files too.
func call(number, fd uintptr, b []byte) (int, error) {
	n, _, errno := syscall.RawSyscall6(number, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), syscall.MSG_DONTWAIT|syscall.MSG_NOSIGNAL, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

func (h *half) peek(fd uintptr, b []byte) (int, error) {
	n, _, errno := syscall.RawSyscall6(syscall.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)),
		syscall.MSG_PEEK|syscall.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
