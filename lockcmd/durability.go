package lockcmd

import (
	"strconv"
	"time"

	"lockproxy/internal/monotonic"
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

// FailedOver says that another server is about to become the upstream. It may lack the last locks
// of the old one. Any goroutine can call it, and it does not block.
func (m *callMaker) FailedOver() {
	m.holdOff.Store(monotonic.Now() + int64(m.cfg.FailoverHold))
}

// heldOff is the rest of the time after a failover in which no lock is given out, 0 if it is over.
func (m *callMaker) heldOff() time.Duration {
	end := m.holdOff.Load()
	if end == 0 {
		return 0
	}
	return max(-monotonic.Since(end), 0)
}

// Confirmation says who must confirm a script's writes: Replicas replicas that they have them, or
// with Fsync the upstream and these replicas that they have them on disk. The zero value asks for
// nothing.
type Confirmation struct {
	Replicas int
	Fsync    bool
	Within   time.Duration // how long it may take
}

// Needed reports whether anything must confirm it.
func (c Confirmation) Needed() bool { return c.Replicas > 0 || c.Fsync }

// confirmation is what must confirm a script that may give out a lock.
func (d Durability) confirmation() Confirmation {
	c := Confirmation{d.MinReplicas, d.RequireFsync, d.ReplicaTimeout}
	if !c.Needed() {
		return Confirmation{}
	}
	return c
}

// waitAtKey is the name of WAIT and WAITAOF on a connection to a cluster, with the lock before
// their arguments. It runs on the connection that has last answered for that key, and fails if that
// has ended.
const waitAtKey = "LOCKPROXY.WAIT"

// ConfirmRequest is sent after the script, on the same connection. Its answer is Answer.Confirmed.
func (c *Call) ConfirmRequest(cluster bool) []string {
	of := c.Confirm
	name, numbers := "WAIT", []string{strconv.Itoa(of.Replicas), milliseconds(of.Within)}
	if of.Fsync {
		name, numbers = "WAITAOF", append([]string{"1"}, numbers...)
	}
	if cluster {
		return append([]string{waitAtKey, c.Keys[0]}, numbers...)
	}
	return append([]string{name}, numbers...)
}

// unconfirmed is a NoReplicasError with an outcome if the script's writes were not confirmed as
// wanted, otherwise nil.
func (a *Answer) unconfirmed(want Confirmation, outcome string) error {
	replicas, local := a.Confirmed.Int, int64(0)
	if list := a.Confirmed.Elems; len(list) == 2 { // WAITAOF's
		local, replicas = list[0].Int, list[1].Int
	}
	err := NoReplicasError{Want: want, Got: int(replicas), OnDisk: local > 0, Outcome: outcome}
	switch {
	case a.Confirmed.IsError():
		err.Refused = errorOf(a.Confirmed.Text).Error()
	case err.Got >= want.Replicas && (err.OnDisk || !want.Fsync):
		return nil
	}
	return err
}

// notConfirmed is why a lock that was just taken must not be given out: it was not confirmed as
// wanted, or its server was replaced meanwhile. It is nil otherwise.
func (m *callMaker) notConfirmed(a *Answer, want Confirmation) error {
	if held := m.heldOff(); held > 0 {
		return replacedError(held)
	}
	return a.unconfirmed(want, notTaken)
}

// The outcomes of a lock that was not confirmed.
const (
	notTaken    = "the lock was not taken, try again"
	stillOwners = "the lock is its owner's as before, on the upstream alone for longer"
	notLonger   = "the lock may run for longer on the upstream alone, try again"
)
