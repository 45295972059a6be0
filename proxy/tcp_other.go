//go:build !linux

package proxy

import (
	"errors"
	"net"
)

// cork does nothing here: a client may have its last answer for a moment before it sees the end.
func cork(net.Conn, bool) {}

// sendQueue can't tell here what has reached the peer.
func sendQueue(net.Conn) (n int, err error) { return 0, errors.ErrUnsupported }

// receiveQueue can't tell here what has come.
func receiveQueue(net.Conn) int { return 0 }

// hungUp can't tell here without reading.
func hungUp(net.Conn) bool { return false }
