package lockcmd

import (
	"time"

	"lockproxy/internal/monotonic"
	"lockproxy/lockcmd/failure"
	"lockproxy/lockcmd/script"
)

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
		return failure.ReplacedError{Rest: held, Outcome: script.NotTaken}
	}
	return a.Unconfirmed(want, script.NotTaken)
}
