package lockcmd

import (
	"fmt"
	"time"

	"lockproxy/internal/resp"
)

// Call is one run of a script on a lock: what the upstream is asked.
type Call struct {
	Script  *Script
	Keys    [2]string // the lock and its companion
	Args    [5]string
	Until   time.Time // when a Session fails with a LateError unless it is answered; zero is never
	Confirm Replicas
}

// Replicas is how many replicas are to confirm what a script has written before it counts as
// answered, and how long they may take. The zero value is none.
type Replicas struct {
	Min    int
	Within time.Duration
}

// Answer is what the upstream has said to a Call.
type Answer struct {
	resp.Value            // the script's; an error reply is one
	Confirmed  resp.Value // WAIT's, if replicas were to confirm it and the script has not failed
}

// evaluator is where scripts run: a Session, or a chores connection. An error of Eval's is a
// failure to get an answer; it may concern Confirmed alone.
type evaluator interface {
	Eval(c *Call) (Answer, error)
}

// fastArgs is what the fast part of a script needs, see fast_lock.lua and fast_unlock.lua.
type fastArgs [3]string

// noFastPath leaves the fast part out.
var noFastPath fastArgs

// call is a run of a script on a lock and its companion. args are without blanks.
func (l *Locks) call(script *Script, key string, fast fastArgs, owner string, args ...string) Call {
	return Call{
		Script: script,
		Keys:   [2]string{key, RecordKey([]byte(key))},
		Args:   [5]string{l.list(args), owner, fast[0], fast[1], fast[2]},
	}
}

// list is a script's arguments in one, as read.lua takes them.
func (l *Locks) list(args []string) string {
	var room [256]byte
	list := room[:0]
	for _, arg := range args {
		list = append(append(list, arg...), ' ')
	}
	return string(append(list, l.guard...))
}

// ask runs a script that needs nobody's confirmation, and reads its answer.
func (l *Locks) ask(on evaluator, script *Script, key string, args ...string) (resp.Value, error) {
	c := l.call(script, key, noFastPath, "", args...)
	a, err := on.Eval(&c)
	return a.Value, a.failure(err)
}

// failure is the error that came in place of an answer, or that the answer is: err, a ServerError,
// or the loss of the node that was to wait for replicas.
func (a *Answer) failure(err error) error {
	switch {
	case err != nil:
		return err
	case a.IsError():
		return errorOf(a.Text)
	case a.Confirmed.IsError():
		if lost, ok := errorOf(a.Confirmed.Text).(relayedError); ok {
			return lost // with what the script has done: that is unknown
		}
	}
	return nil
}

// ints takes the whole numbers, at least n, out of the answer to c.
func (c *Call) ints(n int, a Answer, err error) ([]int64, error) {
	if err = a.failure(err); err != nil {
		return nil, err
	}
	return ints(c.Script, n, a.Value)
}

// ints takes the whole numbers, at least n, out of what a script has said.
func ints(script *Script, n int, v resp.Value) ([]int64, error) {
	if v.Type == ':' {
		return script.expandShortReply(v.Int), nil
	}
	list := make([]int64, 0, 3)
	for _, e := range v.Elems {
		if e.Type != ':' {
			break
		}
		list = append(list, e.Int)
	}
	if len(list) < n {
		return nil, unexpected(script, v)
	}
	return list, nil
}

// unexpected is an answer that the script can't give: the upstream has replaced or altered a
// command that it uses.
func unexpected(script *Script, v resp.Value) error {
	return fmt.Errorf("the upstream's answer to the %s script is none of the script's: type %q, %d elements",
		script.Name, v.Type, len(v.Elems))
}
