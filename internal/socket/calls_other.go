//go:build !linux

package socket

import "syscall"

func (h *half) read(fd uintptr, b []byte) (int, error)  { return syscall.Read(int(fd), b) }
func (h *half) write(fd uintptr, b []byte) (int, error) { return syscall.Write(int(fd), b) }

func peek(fd uintptr, b []byte) (int, error) {
	n, _, err := syscall.Recvfrom(int(fd), b, syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	return max(n, 0), err
}
