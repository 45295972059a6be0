package script

import (
	"bytes"
	"strconv"
	"time"
)

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

// waitAtKey is the name of WAIT and WAITAOF on a connection to a cluster, with the lock before
// their arguments. It runs on the connection that has last answered for that key, and fails if that
// has ended.
const waitAtKey = "LOCKPROXY.WAIT"

// Confirms reports whether the answer to c must be confirmed: whether a lock was given, or made to
// run for longer.
func (c *Call) Confirms(a Answer) bool {
	if !c.Confirm.Needed() {
		return false
	}
	ints, err := c.Ints(1, a, nil)
	return err == nil && (ints[0] > 0 && c.Script != UnlockScript || c.Script == UnlockScript &&
		len(ints) > 1 && ints[1] > 0)
}

// GivesLocks reports whether c asks for a lock: mostly it gets nothing, and no replica is waited
// for.
func (c *Call) GivesLocks() bool {
	return c.Script == LockScript || c.Script == onceScript || c.Script == allScript
}

// ConfirmRequest is sent after the script, on the same connection. Its answer is Answer.Confirmed.
func (c *Call) ConfirmRequest(cluster bool) []string {
	return c.confirmRequest(cluster, c.Confirm.Within)
}

func (c *Call) confirmRequest(cluster bool, within time.Duration) []string {
	of := c.Confirm
	name, numbers := "WAIT", []string{strconv.Itoa(of.Replicas), milliseconds(within)}
	if of.Fsync {
		name, numbers = "WAITAOF", append([]string{"1"}, numbers...)
	}
	if cluster {
		return append([]string{waitAtKey, c.Keys[0]}, numbers...)
	}
	return append([]string{name}, numbers...)
}

// ConfirmAgain is ConfirmRequest again, if the last one was ended sooner than it should: by CLIENT
// UNBLOCK, that means the client and not what the proxy asks for itself. took is how long that and
// those before it have taken. Otherwise it is nil.
func (c *Call) ConfirmAgain(cluster bool, a Answer, took time.Duration) []string {
	rest := c.Confirm.Within - took
	if rest < time.Millisecond || a.Unconfirmed(c.Confirm, "") == nil ||
		a.Confirmed.IsError() && !bytes.HasPrefix(a.Confirmed.Text, []byte("UNBLOCKED")) {
		return nil
	}
	return c.confirmRequest(cluster, rest)
}

// Unconfirmed is a NoReplicasError with an outcome if the script's writes were not confirmed as
// wanted, otherwise nil.
func (a *Answer) Unconfirmed(want Confirmation, outcome string) error {
	replicas, local := a.Confirmed.Int, int64(0)
	if list := a.Confirmed.Elems; len(list) == 2 { // WAITAOF's
		local, replicas = list[0].Int, list[1].Int
	}
	err := NoReplicasError{Want: want, Got: int(replicas), OnDisk: local > 0, Outcome: outcome}
	switch {
	case a.Confirmed.IsError():
		err.Refused = ErrorOf(a.Confirmed.Text).Error()
	case err.Got >= want.Replicas && (err.OnDisk || !want.Fsync):
		return nil
	}
	return err
}

// The outcomes of a lock that was not confirmed.
const (
	NotTaken  = "the lock was not taken, try again"
	NotUndone = "it is not known whether the lock is still held, it is being released, try " +
		"again"
	StillOwners   = "the lock is its owner's as before, on the upstream alone for longer"
	UnsafeTimeout = "the new timeout holds on the upstream alone, try again"
)
