package peer

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// stateOf returns what the kernel knows of the other end of a TCP connection.
func stateOf(raw syscall.RawConn) (state, error) {
	var info *unix.TCPInfo
	var failed error
	err := raw.Control(func(fd uintptr) {
		info, failed = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return state{}, err
	}
	return state{
		owes:   info.Unacked > 0 || info.Probes > 0,
		tries:  int(max(info.Retransmits, info.Probes)),
		silent: time.Duration(min(info.Last_ack_recv, info.Last_data_recv)) * time.Millisecond,
	}, nil
}
