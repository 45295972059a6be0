package proxy

import "sync/atomic"

// phase is how far a session is between its first byte and its last.
type phase int32

const (
	handshaking phase = iota // the PROXY header or the TLS handshake is not done
	serving
	locking  // a command waits for other clients
	draining // the server shuts down: the session ends as soon as it can
	corked   // likewise, and what is written waits for what follows, or the end: see cork
	drained  // the session ends for that: what the client still sends is not run
	closed   // the client has been sent the end of the connection, for another reason
)

// phases is a session's phase. Any goroutine can read and change it; only the session's own makes
// it locking or corked.
type phases struct{ now atomic.Int32 }

func (p *phases) is(what phase) bool { return phase(p.now.Load()) == what }

// ends reports whether the client is sent nothing more than what it is owed.
func (p *phases) ends() bool { return phase(p.now.Load()) >= drained }

// drains reports whether the session ends as soon as it can, since its server shuts down.
func (p *phases) drains() bool {
	now := phase(p.now.Load())
	return draining <= now && now <= drained
}

// setPhase makes the phase to, if that can follow the one before, which it returns.
func (p *phases) setPhase(to phase) (was phase) {
	for {
		was = phase(p.now.Load())
		follows := false
		switch to {
		case serving:
			follows = was == handshaking || was == locking
		case locking:
			follows = was == serving
		case draining:
			follows = was <= locking || was == corked
		case corked, drained:
			follows = was == draining || was == corked
		case closed:
			follows = was != drained
		}
		if !follows || p.now.CompareAndSwap(int32(was), int32(to)) {
			return was
		}
	}
}
