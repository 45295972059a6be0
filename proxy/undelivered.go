package proxy

import (
	"errors"
	"io"
	"math"
	"net"
	"syscall"
	"time"

	"lockproxy/internal/loopguard"
	"lockproxy/lockcmd/held"
)

// A lock is released if its token crossed with the end of the connection: otherwise no client would
// have it, and all would wait for its lease to end. But the end of a connection does not say what
// the client has read. The kernel of a process that dies sends a reset if something is unread. A
// balancer sends one too, when a connection has long been silent, and its client may hold a lock
// and work. So these count:
//
//	signal                                            certain
//	the token was never given to the kernel, since    yes
//	writing failed, and will not be, since a reset
//	came
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

// sentPosition is when and where the client is sent a token that ends the next n bytes.
func (x *exchange) sentPosition(n int) held.Sent {
	in := x.client.in.Load()
	if !x.client.wrapped() {
		in += uint64(receiveQueue(x.client.control))
	}
	return held.Sent{At: time.Now(), End: x.pipe.Status().Given + uint64(n), In: in}
}

// acknowledged is how many bytes a client that has closed has acknowledged, if it has refused the
// rest, and otherwise more than all. The connection must be open: it closes when the last reply is
// written.
func (x *exchange) acknowledged() uint64 {
	last, ok := x.client.holder.LastUndelivered()
	if !ok || !errors.Is(x.in.readErr, io.EOF) {
		return math.MaxUint64
	}
	written := x.client.out.Load()
	refused := x.refusedBytes(written - min(written, last.End))
	if x.client.wrapped() {
		refused = min(refused, 1) // of the bytes that are counted only the very last is known
	}
	if refused == 0 {
		return math.MaxUint64
	}
	return written - refused
}

// markUnread tells the Holder which tokens count as not having reached the client. ended is when
// the client had closed, and acked how much it had acknowledged.
func (x *exchange) markUnread(ended time.Time, acked uint64) {
	written, failed := x.client.out.Load(), x.pipe.Status().ClientErr
	// A reset is told once, to the reader or to the writer.
	reset := errors.Is(x.in.readErr, syscall.ECONNRESET) || errors.Is(failed, syscall.ECONNRESET)
	x.client.holder.MarkUnread(func(sent held.Sent) bool {
		switch {
		case written < sent.End:
			return failed != nil || reset
		case sent.End > acked:
			return true
		}
		return reset && ended.Sub(sent.At) < resetWithin
	})
}

// refusedBytes is how many of the last written bytes a client that has closed didn't acknowledge
// and answered by a reset. It is 0 if these are no more than behind, or if nothing tells.
func (x *exchange) refusedBytes(behind uint64) uint64 {
	loopguard.MayWait()
	if _, isTCP := x.client.raw.(*net.TCPConn); !isTCP {
		return 0
	}
	for over := time.Now().Add(ackTimeout); ; time.Sleep(2 * time.Millisecond) {
		unacknowledged, err := sendQueue(x.client.control)
		if err != nil || unacknowledged <= int(behind) {
			return 0
		}
		if x.client.wasReset() || x.pipe.Status().ClientErr != nil {
			return uint64(unacknowledged)
		}
		if x.ctx.Err() != nil || time.Now().After(over) {
			return 0
		}
	}
}
