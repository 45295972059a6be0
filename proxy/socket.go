package proxy

import (
	"errors"
	"os"
	"syscall"
)

// onSocket runs call on a client's socket, if it has one.
func onSocket(control syscall.RawConn, call func(fd uintptr)) error {
	if control == nil {
		return errors.ErrUnsupported
	}
	return control.Control(call)
}

// isTimeout reports whether a deadline has ended a read or an accept.
func isTimeout(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
