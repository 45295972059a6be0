package lockcmd

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// mayHaveRun reports whether the request that failed with err may have been carried out all the
// same.
func mayHaveRun(err error) bool {
	var said ServerError
	var held heldOffError
	var sent interface{ MayHaveRun() bool }
	switch {
	case errors.As(err, &said), errors.As(err, &held), isNoReplicas(err), err == ErrGone:
		return false
	case errors.As(err, &sent):
		return sent.MayHaveRun()
	}
	return true
}

// hasCode reports whether an error reply begins with one of these words.
func hasCode(said ServerError, codes ...string) bool {
	code, _, _ := strings.Cut(string(said), " ")
	return slices.Contains(codes, code)
}

// relayedError is an UPSTREAM error that came as a reply: of a cluster of which one node was lost,
// where the connection to the others goes on, or of a lockproxy behind this one. Its text is
// without UPSTREAM.
type relayedError string

func (e relayedError) Error() string { return string(e) }

// MayHaveRun reports whether the request may have been carried out: its words are passthrough's.
func (e relayedError) MayHaveRun() bool { return !strings.Contains(string(e), "nothing was sent") }

// errorOf is what an error reply says.
func errorOf(text []byte) error {
	if said, ok := strings.CutPrefix(string(text), "UPSTREAM "); ok {
		return relayedError(said)
	}
	return ServerError(text)
}

// LateError says that a wait was over before the upstream had answered a script. Answered is closed
// when it has, or is lost; nil says that the script was not sent, behind another that is late.
type LateError struct{ Answered <-chan struct{} }

func (e LateError) Error() string {
	if e.Answered == nil {
		return "does not answer: nothing was sent, try again"
	}
	return "has not answered in time: whether the lock was taken is not known, try again"
}

// MayHaveRun reports whether the script may yet run.
func (e LateError) MayHaveRun() bool { return e.Answered != nil }

// UsageError is a request that is wrong in itself; its text is Redis's own wording, code included.
type UsageError string

func (e UsageError) Error() string { return string(e) }

// ServerError is an error that the upstream answered to a script, to be passed on as it said it.
type ServerError string

func (e ServerError) Error() string { return string(e) }

func isNoReplicas(err error) bool {
	var missing NoReplicasError
	return errors.As(err, &missing)
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

// heldOffError is the answer to a LOCK meanwhile. It is one of the upstream's state: nothing was sent.
type heldOffError time.Duration

func (e heldOffError) Error() string {
	return fmt.Sprintf("was replaced by another server: locks that it may have lost are waited out for another %v (--failover-hold); nothing was sent, try again",
		time.Duration(e).Round(time.Millisecond))
}

// FencedError says that a fenced command was not run, since its token doesn't hold the lock.
type FencedError struct {
	Key   string
	Token int64
}

func (e FencedError) Error() string {
	return fmt.Sprintf("FENCED token %d does not hold the lock '%s' (any more): the command was not run", e.Token, e.Key)
}

// ErrGone is the cause with which a command's context ends when the client has closed or the server shuts
// down. Nobody hears of the one, and the other is told with a code of Redis's own by which client
// libraries try again by themselves.
const ErrGone = UsageError("TRYAGAIN the wait was ended, since this side of the connection was " +
	"closed or the proxy is shutting down: the lock was not acquired; connect again and ask again")

// ErrLost is the cause when the session is about to end, since a connection to the upstream that it
// can't do without has ended.
var ErrLost = errors.New("the session has lost its connection to the upstream")
