//go:build !linux

package proxy

import (
	"errors"
	"syscall"
)

// cork does nothing here: a client may have its last answer for a moment before it sees the end.
func cork(syscall.RawConn, bool) {}

// sendQueue can't tell here what has reached the peer.
func sendQueue(syscall.RawConn) (n int, err error) { return 0, errors.ErrUnsupported }

// receiveQueue can't tell here what has come.
func receiveQueue(syscall.RawConn) int { return 0 }

// readable can't tell here.
func readable(syscall.RawConn) bool { return false }

// hungUp can't tell here without reading.
func hungUp(syscall.RawConn) bool { return false }
