package lockcmd

// What the operator demands beyond the upstream's own word, for upstreams that may lose writes in a failover.

import (
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

// WaitAtKey is what WAIT is called on a connection to a cluster, with the lock as its first
// argument: it is for the node that has answered for that key last, on the connection by which it
// did, and fails if that has ended.
const WaitAtKey = "LOCKPROXY.WAIT"

// replicas are those that must confirm a script that may give out a lock.
func (d Durability) replicas() Replicas {
	if d.MinReplicas == 0 {
		return Replicas{}
	}
	return Replicas{d.MinReplicas, d.ReplicaTimeout}
}

// missingReplicas is the NoReplicasError if too few replicas have confirmed what the script wrote. outcome
// says what is true of the lock then.
func (a *Answer) missingReplicas(want Replicas, outcome string) error {
	got, refused := int(a.Confirmed.Int), ""
	if a.Confirmed.IsError() {
		refused = errorOf(a.Confirmed.Text).Error()
	}
	if got >= want.Min {
		return nil
	}
	return NoReplicasError{Got: got, Want: want.Min, Within: want.Within, Refused: refused, Outcome: outcome}
}

// notConfirmed is why a lock that was just taken must not be given out, or nil: too few replicas have
// it, or its server has been replaced in this moment.
func (l *Locks) notConfirmed(a *Answer, want Replicas) error {
	if held := l.holdOff.remaining(); held > 0 {
		return heldOffError(held)
	}
	return a.missingReplicas(want, notTaken)
}

// What is true of a lock of which too few replicas know.
const (
	notTaken    = "the lock was not taken, try again"
	stillOwners = "the lock is its owner's as before, on the upstream alone for longer"
	notLonger   = "the lock may run for longer on the upstream alone, try again"
)
