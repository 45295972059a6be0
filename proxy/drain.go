package proxy

import "time"

// While its server shuts down, a session ends between two commands, with all that was asked
// answered. A client that sends a command when it has the answer to the last finds its connection
// closed before it sends: the last answer and the end of the connection come in one packet, see
// cork. Commands that come after that are not run: see tryClose.

// maxIdleDrain is how long a client that sends nothing keeps its connection while the server shuts
// down. One that sends something is closed with its answer, which is the better moment.
const maxIdleDrain = time.Second

// idleDrain is how long a shutdown waits for clients that send nothing.
func idleDrain(deadline time.Time, bounded bool) time.Duration {
	if !bounded {
		return maxIdleDrain
	}
	return min(maxIdleDrain, time.Until(deadline)/4)
}

// drain makes the session end as soon as it can; while its client sends nothing, not before idle.
// Any goroutine can call it.
func (s *session) drain(idle time.Time) {
	s.idleEnd = idle
	if s.client.setPhase(draining) == handshaking {
		s.client.SetReadDeadline(idle)
		return
	}
	s.x.wake()
	s.client.interruptRead()
	s.client.reg.Wake()
}
