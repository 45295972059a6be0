package upstream

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

	"lockproxy/internal/resp"
)

// Error is a failure of the upstream or of the way to it.
type Error struct {
	Addr string
	Sent bool // the request may have reached the upstream, and may have run
	Err  error
}

func (e *Error) Error() string {
	if e.Sent {
		return fmt.Sprintf("connection to %s was lost before the reply: whether the command ran "+
			"is unknown (%v)",
			e.Addr, e.Err)
	}
	if OutOfFiles(e.Err) {
		return fmt.Sprintf("the proxy has too many open files to connect to %s: nothing was sent, "+
			"try again (%v)", e.Addr, e.Err)
	}
	return fmt.Sprintf("cannot reach %s: nothing was sent, try again (%v)", e.Addr, e.Err)
}

// OutOfFiles reports whether this process, or its machine, has no open file left: the upstream may
// serve nevertheless.
func OutOfFiles(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

func (e *Error) Unwrap() error { return e.Err }

// MayHaveRun reports whether the request may have reached the upstream.
func (e *Error) MayHaveRun() bool { return e.Sent }

// Refused is the upstream's error to the login that the proxy does on a new connection.
type Refused struct {
	Addr  string
	From  string // the server's own address, where Addr is a host name or a group
	Step  string // AUTH, SELECT, HELLO, PING or a CLIENT command
	Reply string // as the upstream said it
}

func (e *Refused) Error() string {
	return fmt.Sprintf("%s refused the proxy's %s: %s", e.Addr, e.Step, e.Reply)
}

// MayHaveRun is false: nothing is sent on a connection whose login is refused.
func (e *Refused) MayHaveRun() bool { return false }

// Said is the upstream's reply.
func (e *Refused) Said() string { return strings.TrimPrefix(e.Reply, "-") }

// Refusal is the reply to a request for a node of a cluster that does not let the client in.
func (e *Refused) Refusal() []byte {
	what := "login"
	if strings.HasPrefix(e.Step, "CLIENT") || e.Step == "SELECT" {
		what = e.Step
	}
	return resp.AppendError(nil, fmt.Sprintf("%snode %s refused the %s that other nodes "+
		"of the cluster have accepted: %s", Prefix, e.Addr, what, e.Reply))
}

// Prefix begins the replies that tell of a failure of the upstream.
const Prefix = "UPSTREAM "

// nodeFailure is the reply to a request that failed with a node of a cluster.
func nodeFailure(addr string, sent bool, err error) []byte {
	var known *Error
	if errors.As(err, &known) {
		err = known.Err
	}
	return resp.AppendError(nil, Prefix+(&Error{Addr: addr, Sent: sent, Err: err}).Error())
}

// FailureIn reads a reply that says that the upstream's own upstream has failed: a cluster's node,
// or what is behind another lockproxy. It is nil for all others.
func FailureIn(raw []byte) error {
	text, is := strings.CutPrefix(string(raw[:min(len(raw), 1024)]), "-"+Prefix)
	if !is {
		return nil
	}
	return nestedError(strings.TrimSpace(text))
}

// nestedError is such a failure.
type nestedError string

func (e nestedError) Error() string { return string(e) }

// MayHaveRun reports whether the request may have reached its node: unless the text says otherwise.
func (e nestedError) MayHaveRun() bool { return !strings.Contains(string(e), "nothing was sent") }
