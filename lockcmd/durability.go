package lockcmd

import (
	"sync/atomic"
	"time"
)

// Durability is what an operator asks for where the upstream may lose writes in a failover. The
// zero value asks for nothing.
type Durability struct {
	MinReplicas    int           // replicas that must have a lock before its token is given out
	ReplicaTimeout time.Duration // how long they may take; more than 0 if MinReplicas is
	TakeoverGuard  time.Duration // how long after its expiry a lock may be taken over
	FailoverHold   time.Duration // how long after a failover no lock is given out
}

// holdOff is the time after a failover in which no lock is given out.
type holdOff struct {
	until atomic.Pointer[time.Time] // nil if there was no failover
}

// FailedOver says that another server is about to become the upstream. It may lack the last locks
// of the old one. Any goroutine may call it, and it does not block.
func (l *Locks) FailedOver() {
	until := time.Now().Add(l.cfg.FailoverHold)
	l.holdOff.until.Store(&until)
}

// remaining is the rest of the hold-off, 0 if it is over.
func (h *holdOff) remaining() time.Duration {
	until := h.until.Load()
	if until == nil {
		return 0
	}
	return max(time.Until(*until), 0)
}

// WaitAtKey is the name of WAIT on a connection to a cluster, with the lock as its first argument.
// It runs on the connection that has last answered for that key, and fails if that has ended.
const WaitAtKey = "LOCKPROXY.WAIT"

// replicas is what must confirm a script that may give out a lock.
func (d Durability) replicas() Replicas {
	if d.MinReplicas == 0 {
		return Replicas{}
	}
	return Replicas{d.MinReplicas, d.ReplicaTimeout}
}

// missingReplicas is a NoReplicasError if too few replicas have confirmed what the script wrote,
// otherwise nil. outcome says what is true of the lock then.
func (a *Answer) missingReplicas(want Replicas, outcome string) error {
	got := int(a.Confirmed.Int)
	if got >= want.Min {
		return nil
	}
	err := NoReplicasError{Got: got, Want: want.Min, Within: want.Within, Outcome: outcome}
	if a.Confirmed.IsError() {
		err.Refused = errorOf(a.Confirmed.Text).Error()
	}
	return err
}

// notConfirmed is why a lock that was just taken must not be given out: too few replicas have it,
// or its server was replaced meanwhile. It is nil otherwise.
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
