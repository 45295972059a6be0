package lockcmd

import (
	"sync/atomic"
	"time"

	"lockproxy/internal/monotonic"
	"lockproxy/lockcmd/background"
	"lockproxy/lockcmd/failure"
	"lockproxy/lockcmd/script"
)

// Durability is what an operator asks for where the upstream can lose writes in a failover. The
// zero value asks for nothing.
type Durability struct {
	MinReplicas    int           // replicas that must have a lock before its token is given out
	RequireFsync   bool          // the upstream and they must have it on disk before that
	ReplicaTimeout time.Duration // how long that may take; more than 0 with either of them
	TakeoverGuard  time.Duration // how long after its expiry a lock can be taken over
	FailoverHold   time.Duration // how long after a failover no lock is given out
}

// common is what all parts of Locks have.
type common struct {
	*background.Jobs
	cfg     Config
	holdOff atomic.Int64 // its end, as monotonic.Now; 0 if there was none
}

// FailedOver says that another server is about to become the upstream. It may lack the last locks
// of the old one. Any goroutine can call it, and it does not block.
func (l *Locks) FailedOver() {
	l.common.holdOff.Store(monotonic.Now() + int64(l.common.cfg.FailoverHold))
}

// heldOff is the rest of the time after a failover in which no lock is given out, 0 if it is over.
func (c *common) heldOff() time.Duration {
	end := c.holdOff.Load()
	if end == 0 {
		return 0
	}
	return max(-monotonic.Since(end), 0)
}

// confirmation is what must confirm a script that may give out a lock.
func (d Durability) confirmation() script.Confirmation {
	of := script.Confirmation{Replicas: d.MinReplicas, Fsync: d.RequireFsync, Within: d.ReplicaTimeout}
	if !of.Needed() {
		return script.Confirmation{}
	}
	return of
}

// isTransient reports whether a waiter goes on although the upstream has failed with err.
func (c *common) isTransient(err error) bool { return failure.IsTransient(err, c.cfg.Moves) }

// notConfirmed is why a lock that was just taken must not be given out: it was not confirmed as
// wanted, or its server was replaced meanwhile. It is nil otherwise.
func (c *common) notConfirmed(a *script.Answer, want script.Confirmation) error {
	if held := c.heldOff(); held > 0 {
		return failure.ReplacedError(held)
	}
	return a.Unconfirmed(want, script.NotTaken)
}
