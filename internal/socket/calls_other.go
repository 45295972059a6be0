//go:build !linux

package socket

import "syscall"

func read(fd uintptr, b []byte) (int, error)  { return syscall.Read(int(fd), b) }
func write(fd uintptr, b []byte) (int, error) { return syscall.Write(int(fd), b) }
