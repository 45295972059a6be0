//go:build !linux

package proxy

import (
	"errors"
	"net"
)

// cork does nothing here: a client may have the last answer for a moment before it is told of the end.
func (s *session) cork(hold bool) {}

// sendQueue can't tell here what has reached the peer.
func sendQueue(net.Conn) (n int, err error) { return 0, errors.ErrUnsupported }
