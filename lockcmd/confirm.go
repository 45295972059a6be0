package lockcmd

// How a lock is given out only once enough replicas have it: --min-replicas.

import "errors"

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

func isNoReplicas(err error) bool {
	var missing NoReplicasError
	return errors.As(err, &missing)
}

// undo takes back a lock whose client is not told of it, and leaves it free: a waiter would fare no
// better with it.
func (l *Locks) undo(on evaluator, lock *heldLock) {
	if _, err := l.release(on, lock.id(), lock.as, lock.releaseProof(), false); err != nil {
		l.releaseAbandoned(lock)
	}
}

// rollBack takes back what a poll or a check of w's has found if too few replicas know of it, or if a
// release has given up giving it to w meanwhile. Then w has left: nobody gives it the lock any
// more. It returns the error that w's client is answered, nil if there is nothing to take back.
func (l *Locks) rollBack(s Session, id LockID, w *waiter, a attempt, err error) error {
	missing := err != nil && a.token != 0 && !a.renewed
	l.mu.Lock()
	if missing && w.rejected == nil {
		w.rejected = err
	}
	denied := w.rejected
	if denied != nil {
		w.state = left
	}
	l.mu.Unlock()
	if (denied != nil || err != nil) && a.token != 0 && !a.before {
		l.undo(s, w.lock(a.token))
	}
	return denied
}

// reject ends an offer whose lock too few replicas know of. What it must undo first is up to its
// caller, who tells the waiter by signal afterwards. found says that the waiter has found the lock
// by itself meanwhile, with enough replicas: then it keeps it.
func (q *waitQueue) reject(offer handOver, err error) (found bool) {
	if offer.next.state == granted {
		return true
	}
	if offer.next.state == offered {
		offer.next.state, offer.next.rejected = left, err
	}
	return false
}
