package failure

import (
	"errors"
	"fmt"
	"net"
	"time"

	"lockproxy/lockcmd/deadlock"
	"lockproxy/lockcmd/script"
	"lockproxy/lockcmd/syntax"
)

// MayHaveRun reports whether the request that failed with err may have been carried out.
func MayHaveRun(err error) bool {
	var said script.ServerError
	var held HeldOffError
	var sent interface{ MayHaveRun() bool }
	switch {
	case errors.As(err, &said), errors.As(err, &held), IsUnconfirmed(err), IsDeadlock(err),
		IsUnblocked(err), err == ErrGone:
		return false
	case errors.As(err, &sent):
		return sent.MayHaveRun()
	}
	return true
}

// NeverSent reports whether a script has failed before it was sent.
func NeverSent(err error) bool {
	var sent interface{ MayHaveRun() bool }
	return errors.As(err, &sent) && !sent.MayHaveRun()
}

// IsTransient reports whether a waiter goes on although the upstream has failed with err: another
// server will replace it (moves), or it is only silent, or the connection was. The next poll finds
// what this one may have taken.
func IsTransient(err error, moves bool) bool {
	var held HeldOffError
	if errors.As(err, &held) {
		return true
	}
	if errors.Is(err, ErrLost) || IsStopped(err) {
		return false
	}
	if IsSilence(err) {
		return true
	}
	if !moves {
		return false
	}
	var said script.ServerError
	if errors.As(err, &said) {
		return said.IsTransient()
	}
	var failed interface{ MayHaveRun() bool }
	return errors.As(err, &failed)
}

// LateError says that a script of a wait was not answered while others could wait for that: the
// queue asks by other connections from then on. Answered is closed when it has been answered, or is
// lost. If it is nil, the script was not sent: an earlier one is late.
type LateError struct {
	Answered <-chan struct{}
	Late     interface{ Answer() (script.Answer, error) } // the answer, once Answered is closed
	Refused  error                                        // why no other can be asked; or nil
}

func (e LateError) Error() string {
	if e.Refused != nil {
		return "does not answer, and refuses other connections: " + e.Refused.Error()
	}
	if e.Answered == nil {
		return "does not answer: nothing was sent, try again"
	}
	return "has not answered in time: it is not known whether the lock was taken, try again"
}

// MayHaveRun reports whether the script can run later.
func (e LateError) MayHaveRun() bool { return e.Answered != nil }

// ErrUnanswered is why a question of a queue has no answer, which was sent on a connection of the
// proxy's own.
var ErrUnanswered = errors.New("a connection of the proxy's own was lost, or has been silent: " +
	"it is unknown whether the script ran")

// IsSilence reports whether there is no answer, or none yet, perhaps to the opening of a connection.
func IsSilence(err error) bool {
	var late LateError
	var timeout net.Error
	return errors.Is(err, ErrUnanswered) || errors.As(err, &late) && late.Refused == nil ||
		NeverSent(err) && errors.As(err, &timeout) && timeout.Timeout()
}

// StoppedError says that the answer to a script was not waited for, since its wait has ended, for
// the reason Why.
type StoppedError struct {
	LateError
	Why error
}

// Late returns err if it says that an answer can come later.
func Late(err error) (late LateError, is bool) {
	var stopped StoppedError
	if errors.As(err, &stopped) {
		return stopped.LateError, true
	}
	errors.As(err, &late)
	return late, late.Answered != nil
}

// IsStopped reports whether err is a StoppedError.
func IsStopped(err error) bool {
	_, is := err.(StoppedError)
	return is
}

func IsDeadlock(err error) bool {
	var deadlock deadlock.Error
	return errors.As(err, &deadlock)
}

// IsUnconfirmed reports whether err says that a lock was taken, and not confirmed as wanted.
func IsUnconfirmed(err error) bool {
	var missing script.NoReplicasError
	var replaced ReplacedError
	return errors.As(err, &missing) || errors.As(err, &replaced)
}

// HeldOffError is the answer to a LOCK after a failover, with the rest of the hold-off.
type HeldOffError time.Duration

func (e HeldOffError) Error() string {
	return holdsOff(time.Duration(e)) + "nothing was sent, try again"
}

// ReplacedError is the answer to a LOCK whose server was replaced as it took the lock.
type ReplacedError struct {
	Rest    time.Duration // of the hold-off
	Outcome string        // of the lock, as NoReplicasError's
}

func (e ReplacedError) Error() string { return holdsOff(e.Rest) + e.Outcome }

// NotUndone is err, which IsUnconfirmed, if the lock could not be released either.
func NotUndone(err error) error {
	if missing, ok := errors.AsType[script.NoReplicasError](err); ok {
		missing.Outcome = script.NotUndone
		return missing
	}
	if replaced, ok := errors.AsType[ReplacedError](err); ok {
		replaced.Outcome = script.NotUndone
		return replaced
	}
	return err
}

func holdsOff(rest time.Duration) string {
	return fmt.Sprintf("was replaced by another server: locks that it may have lost are waited "+
		"out for another %v (--failover-hold); ", rest.Round(time.Millisecond))
}

// SilentError is the answer to clients whose wait ends while the upstream is silent.
type SilentError time.Duration

func (e SilentError) Error() string {
	return fmt.Sprintf("has not answered for %v: it is not known who holds the lock, and it was "+
		"not acquired", time.Duration(e).Round(time.Millisecond))
}

// MayHaveRun is false: nothing was sent for the client.
func (e SilentError) MayHaveRun() bool { return false }

// UnblockedError ends a wait as CLIENT UNBLOCK does: with Redis's error if it is true, otherwise
// with null, as if the wait's time were over.
type UnblockedError bool

func (UnblockedError) Error() string { return "UNBLOCKED client unblocked via CLIENT UNBLOCK" }

// IsUnblocked reports whether a wait was ended by CLIENT UNBLOCK.
func IsUnblocked(err error) bool {
	var unblocked UnblockedError
	return errors.As(err, &unblocked)
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
const ErrGone = syntax.UsageError("TRYAGAIN the wait was ended, since the client has closed its " +
	"side of the connection or the proxy is shutting down: the lock was not acquired; connect " +
	"again and ask again")

// ErrLost is in the error of a Step if its session is about to end because it has lost a connection
// to the upstream that it cannot replace: see SessionLost.
var ErrLost = errors.New("the session has lost its connection to the upstream")

// SessionLost wraps err, so that it is also ErrLost.
func SessionLost(err error) error { return lostError{err} }

type lostError struct{ error }

func (e lostError) Unwrap() []error { return []error{e.error, ErrLost} }
