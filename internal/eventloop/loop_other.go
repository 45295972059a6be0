//go:build !linux

package eventloop

import "syscall"

// Loops are none here.
type Loops struct{}

type entry struct{}

// Start returns nil.
func Start(n int) (*Loops, error) { return nil, nil }

// Stop does nothing.
func (ls *Loops) Stop() {}

func (s *Seat) enter(conn syscall.RawConn) {}

func (s *Seat) entered() bool { return false }

// Close does nothing.
func (s *Seat) Close(conn syscall.RawConn) {}
