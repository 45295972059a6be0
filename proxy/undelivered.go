package proxy

import (
	"errors"
	"io"
	"syscall"
	"time"

	"lockproxy/lockcmd"
)

// A lock is released if its token crossed with the end of the connection: nobody has it, and all would
// wait for its timeout. But the end of a connection does not say what the client has read. The kernel
// of a process that dies sends a reset if something is unread; a balancer sends one too when a
// connection has been silent for long, and its client may hold a lock and work. So these count:
//
//	signal                                            certain
//	the token was never given to the kernel, since    yes
//	writing failed
//	the client's FIN did not acknowledge the token,   yes, unless the client ended what it sends, read
//	and a reset answered the token                    the token, and closed with others on their way
//	                                                  before its kernel had acknowledged that one, which
//	                                                  it delays by 40 ms at most
//	a reset came, without a FIN, within crossing of   no
//	the token
//
// Otherwise the lock is its holder's until its timeout.

const (
	// crossing is how soon behind a token a reset is taken to have crossed with it.
	resetWithin = 100 * time.Millisecond
	// crossPatience is how long a client that has closed may take to say what became of a token that was on its way.
	ackTimeout = time.Second
)

// sent is when and where the client is sent a token that is the last of the next n bytes.
func (s *session) sentPosition(n int) lockcmd.Sent {
	in := s.meter.in.Load()
	if s.watch != nil {
		in += uint64(s.watch.in.Load())
	}
	if s.nc == s.raw { // encrypted there are more bytes than are counted
		in += uint64(receiveQueue(s.raw))
	}
	return lockcmd.Sent{At: time.Now(), End: s.pipe.Status().Given + uint64(n), In: in}
}

// markUnread tells the Holder which tokens are taken never to have reached the client. It is called when
// nothing is written any more and the connection is still open.
func (s *session) markUnread() {
	last, ok := s.holder.LastUndelivered()
	if !ok {
		return
	}
	written, refused, failed := s.meter.out.Load(), uint64(0), s.pipe.Status().ClientErr
	reset := errors.Is(s.readErr, syscall.ECONNRESET) || errors.Is(failed, syscall.ECONNRESET) // it is told once, to who reads or to who writes
	if errors.Is(s.readErr, io.EOF) && !reset {
		refused = s.bytesReset(written - min(written, last.End))
	}
	if s.nc != s.raw && refused > 0 { // encrypted there are more bytes than are counted: nothing is known but of the very last one
		refused = 1
	}
	s.holder.MarkUnread(func(sent lockcmd.Sent) bool {
		switch {
		case written < sent.End:
			return failed != nil
		case reset:
			return time.Since(sent.At) < resetWithin
		}
		return sent.End > written-refused
	})
}

// refused is how many of the last bytes that were written a client that has closed didn't acknowledge and answered by a reset. It is 0 if not more
// than behind were, or nothing tells.
func (s *session) bytesReset(behind uint64) uint64 {
	for over := time.Now().Add(ackTimeout); ; time.Sleep(2 * time.Millisecond) {
		unacknowledged, err := sendQueue(s.raw)
		if err != nil || unacknowledged <= int(behind) {
			return 0
		}
		if s.wasReset() || s.pipe.Status().ClientErr != nil {
			return uint64(unacknowledged)
		}
		if s.ctx.Err() != nil || time.Now().After(over) {
			return 0
		}
	}
}

// broken reports whether a reset has come behind the end of what the client sent.
func (s *session) wasReset() bool {
	conn, ok := s.raw.(syscall.Conn)
	if !ok {
		return false
	}
	control, err := conn.SyscallConn()
	if err != nil {
		return false
	}
	pending := 0
	control.Control(func(fd uintptr) { pending, _ = syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_ERROR) })
	return pending != 0
}
