package lockcmd

// What the operator demands beyond the upstream's own word, for upstreams that may lose writes in a failover.

import (
	"fmt"
	"sync/atomic"
	"time"
)

// Durability is what an operator wants for locks on an upstream with replicas. The zero value asks for nothing.
type Durability struct {
	MinReplicas    int           // a token is given out once so many replicas have the lock; 0 is at once
	ReplicaTimeout time.Duration // how long they may take for that; more than 0 if MinReplicas is
	TakeoverGuard  time.Duration // how long after its expiry another may take over a lock
	FailoverHold   time.Duration // after a failover no lock is given out for so long
}

// NoReplicasError says that too few replicas have acknowledged what was written.
type NoReplicasError struct {
	Got, Want int
	Within    time.Duration
	Refused   string // the upstream's error to WAIT, or ""
	Outcome   string // what is true of the lock now
}

func (e NoReplicasError) Error() string {
	if e.Refused != "" {
		return fmt.Sprintf("NOREPLICAS the upstream does not tell how many replicas acknowledged it (%s): %s", e.Refused, e.Outcome)
	}
	return fmt.Sprintf("NOREPLICAS %d of %d replicas acknowledged it within %v: %s", e.Got, e.Want, e.Within, e.Outcome)
}

// holdOff is the time after a failover in which no lock is given out.
type holdOff struct {
	until atomic.Pointer[time.Time] // nil if there was no failover
}

// FailedOver says that another server is about to be the upstream, which may lack the last locks of the old one. It may be called
// from any goroutine, and doesn't block.
func (l *Locks) FailedOver() {
	until := time.Now().Add(l.cfg.FailoverHold)
	l.holdOff.until.Store(&until)
}

// remaining is how long the hold-off lasts, 0 if it is over.
func (h *holdOff) remaining() time.Duration {
	until := h.until.Load()
	if until == nil {
		return 0
	}
	return max(time.Until(*until), 0)
}

// heldOffError is the answer to a LOCK meanwhile. It is one of the upstream's state: nothing was sent.
type heldOffError time.Duration

func (e heldOffError) Error() string {
	return fmt.Sprintf("was replaced by another server: locks that it may have lost are waited out for another %v (--failover-hold); nothing was sent, try again",
		time.Duration(e).Round(time.Millisecond))
}
