package proxy

import (
	"errors"
	"io"
	"net"
	"syscall"
	"time"

	"lockproxy/lockcmd"
)

// A lock is released if its token crossed with the end of the connection: otherwise no client has
// it, and all wait for its lease to end. But the end of a connection does not say what the client
// has read. The kernel of a process that dies sends a reset if something is unread; a balancer
// sends one too when a connection has been silent for long, and its client may hold a lock and
// work. So these count:
//
//	signal                                            certain
//	the token was never given to the kernel, since    yes
//	writing failed
//	the client's FIN did not acknowledge the token,   yes, unless the client ended what it sends,
//	and a reset answered the token                    read the token, and closed with others on
//	                                                  their way before its kernel had acknowledged
//	                                                  that one, which it delays by 40 ms at most
//	a reset came, without a FIN, within resetWithin   no
//	of the token
//
// Otherwise the lock is its holder's until its lease ends.

const (
	// resetWithin is how soon after a token a reset counts as having crossed with it.
	resetWithin = 100 * time.Millisecond
	// ackTimeout is how long a client that has closed may take to say what became of a token that
	// was on its way.
	ackTimeout = time.Second
)

// sentPosition is when and where the client is sent a token that is the last of the next n bytes.
func (l *locker) sentPosition(n int) lockcmd.Sent {
	in := l.client.in.Load()
	if l.watch != nil {
		in += uint64(l.watch.count.Load())
	}
	if !l.client.wrapped() {
		in += uint64(receiveQueue(l.client.control))
	}
	return lockcmd.Sent{At: time.Now(), End: l.pipe.Status().Given + uint64(n), In: in}
}

// markUnread tells the Holder which tokens count as not having reached the client. It is called
// when nothing is written any more and the connection is still open.
func (l *locker) markUnread() {
	last, ok := l.client.holder.LastUndelivered()
	if !ok {
		return
	}
	written, refused, failed := l.client.out.Load(), uint64(0), l.pipe.Status().ClientErr
	// A reset is told once, to the reader or to the writer.
	reset := errors.Is(l.readErr, syscall.ECONNRESET) || errors.Is(failed, syscall.ECONNRESET)
	if errors.Is(l.readErr, io.EOF) && !reset {
		refused = l.refusedBytes(written - min(written, last.End))
	}
	if l.client.wrapped() {
		refused = min(refused, 1) // of the bytes that are counted only the very last is known
	}
	l.client.holder.MarkUnread(func(sent lockcmd.Sent) bool {
		switch {
		case written < sent.End:
			return failed != nil
		case reset:
			return time.Since(sent.At) < resetWithin
		}
		return sent.End > written-refused
	})
}

// refusedBytes is how many of the last written bytes a client that has closed didn't acknowledge
// and answered by a reset. It is 0 if that are not more than behind, or if nothing tells.
func (l *locker) refusedBytes(behind uint64) uint64 {
	if _, isTCP := l.client.raw.(*net.TCPConn); !isTCP {
		return 0
	}
	for over := time.Now().Add(ackTimeout); ; time.Sleep(2 * time.Millisecond) {
		unacknowledged, err := sendQueue(l.client.control)
		if err != nil || unacknowledged <= int(behind) {
			return 0
		}
		if l.client.wasReset() || l.pipe.Status().ClientErr != nil {
			return uint64(unacknowledged)
		}
		if l.ctx.Err() != nil || time.Now().After(over) {
			return 0
		}
	}
}
