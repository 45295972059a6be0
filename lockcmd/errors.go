package lockcmd

import (
	"errors"
	"fmt"
	"time"

	"lockproxy/lockcmd/deadlock"
	"lockproxy/lockcmd/script"
	"lockproxy/lockcmd/syntax"
)

// mayHaveRun reports whether the request that failed with err may have been carried out.
func mayHaveRun(err error) bool {
	var said script.ServerError
	var held heldOffError
	var sent interface{ MayHaveRun() bool }
	switch {
	case errors.As(err, &said), errors.As(err, &held), isUnconfirmed(err), isDeadlock(err),
		IsUnblocked(err), err == ErrGone:
		return false
	case errors.As(err, &sent):
		return sent.MayHaveRun()
	}
	return true
}

// neverSent reports whether a script has failed before it was sent.
func neverSent(err error) bool {
	var sent interface{ MayHaveRun() bool }
	return errors.As(err, &sent) && !sent.MayHaveRun()
}

// LateError says that a wait was over before the upstream had answered a script. Answered is closed
// when it has answered, or is lost. If it is nil, the script was not sent: an earlier one is late.
type LateError struct{ Answered <-chan struct{} }

func (e LateError) Error() string {
	if e.Answered == nil {
		return "does not answer: nothing was sent, try again"
	}
	return "has not answered in time: whether the lock was taken is not known, try again"
}

// MayHaveRun reports whether the script can run later.
func (e LateError) MayHaveRun() bool { return e.Answered != nil }

func isDeadlock(err error) bool {
	var deadlock deadlock.Error
	return errors.As(err, &deadlock)
}

// isUnconfirmed reports whether err is one of background.notConfirmed.
func isUnconfirmed(err error) bool {
	var missing script.NoReplicasError
	var replaced replacedError
	return errors.As(err, &missing) || errors.As(err, &replaced)
}

// heldOffError is the answer to a LOCK after a failover, with the rest of the hold-off.
type heldOffError time.Duration

func (e heldOffError) Error() string {
	return holdsOff(time.Duration(e)) + "nothing was sent, try again"
}

// replacedError is the answer to a LOCK whose server was replaced as it took the lock, with the
// rest of the hold-off.
type replacedError time.Duration

func (e replacedError) Error() string { return holdsOff(time.Duration(e)) + script.NotTaken }

func holdsOff(rest time.Duration) string {
	return fmt.Sprintf("was replaced by another server: locks that it may have lost are waited "+
		"out for another %v (--failover-hold); ", rest.Round(time.Millisecond))
}

// FencedError says that a fenced command was not run: its token does not hold the lock.
type FencedError struct {
	Key   string
	Token int64
}

func (e FencedError) Error() string {
	return fmt.Sprintf("FENCED token %d does not hold the lock '%s' (any more): "+
		"the command was not run", e.Token, e.Key)
}

// ErrGone is why the context of a command that waits has ended: the client has closed, or the
// server shuts down. Its code makes the libraries of clients that are still there try again.
const ErrGone = syntax.UsageError("TRYAGAIN the wait was ended, since this side of the connection was " +
	"closed or the proxy is shutting down: the lock was not acquired; connect again and ask again")

// ErrLost is in the error of a Step if its session is about to end because it has lost a connection
// to the upstream that it cannot replace: see SessionLost.
var ErrLost = errors.New("the session has lost its connection to the upstream")

// SessionLost is err that is ErrLost, too.
func SessionLost(err error) error { return lostError{err} }

type lostError struct{ error }

func (e lostError) Unwrap() []error { return []error{e.error, ErrLost} }
