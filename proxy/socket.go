package proxy

import (
	"errors"
	"syscall"
)

// onSocket runs call on a client's socket, if it has one.
func onSocket(control syscall.RawConn, call func(fd uintptr)) error {
	if control == nil {
		return errors.ErrUnsupported
	}
	return control.Control(call)
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
