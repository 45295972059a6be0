package lockcmd

import (
	"bytes"
	"cmp"
	"errors"
	"strconv"
	"strings"
	"time"

	"lockproxy/internal/resp"
	"lockproxy/lockcmd/failure"
	"lockproxy/lockcmd/keyname"
	"lockproxy/lockcmd/script"
	"lockproxy/lockcmd/syntax"
)

// fenceTries bounds how often a fenced transaction begins again because the lock's key has changed,
// mostly by a renewal.
const fenceTries = 16

// sharedFenceTries and sharedFenceFor are the same for a shared lock, where each change of its
// holders counts: with dozens of them far from Redis, that is one in most round trips. It tries
// sharedFenceLeast times even if that takes longer, as when the machine has stopped for a while.
const (
	sharedFenceTries = 256
	sharedFenceFor   = 2 * time.Second
	sharedFenceLeast = 4
)

// fenceMoves is how long FENCE tries in a cluster: EXEC also runs nothing while the lock's slot
// moves and the command's keys are not all at one node.
const fenceMoves = 500 * time.Millisecond

// beginFence is FENCE: two round trips. The first watches the lock, runs check.lua and begins a
// transaction. The second runs the command in it. If the lock changes or expires in between, EXEC
// runs nothing. The reply is the command's own, byte for byte; a script would lose some of it (null
// arrays, large numbers, doubles).
//
// Only the lock's key is watched. Every acquisition, release and expiry changes it. Waiters change
// only the lock record. A shared lock's other holders change the key, too: there FENCE also watches
// the record, and a separate key that expires with the token.
func (l *locking) beginFence(_ Client, args [][]byte) *Step {
	token, ok := resp.ParseInt(args[1])
	if !ok {
		return refusedStep(syntax.NotInteger(args[1], syntax.WantToken))
	}
	if !l.cfg.CanFence(args[2:]) {
		return refusedStep(syntax.UsageError("ERR '" + strings.ToLower(string(args[2])) +
			"' can't be fenced: it blocks, or is not a command on data that MULTI allows"))
	}
	f := &fenced{locking: l, keys: []string{string(args[0]), keyname.Record(args[0])},
		token: token, tries: fenceTries, pause: fenceMoves / fenceTries}
	for _, arg := range args[2:] {
		f.command = append(f.command, bytes.Clone(arg)) // the session reads on meanwhile
	}
	_, step := f.try()
	return step
}

// fenced is a FENCE that is under way.
type fenced struct {
	*locking
	keys     []string // the lock's, its record's, and for a shared lock FenceKey
	token    int64
	bySource bool // the upstream does not know the script's hash
	command  [][]byte
	tries    int           // that are left
	until    time.Time     // when no other try begins, but for sharedFenceLeast; zero is never
	pause    time.Duration // between tries, in a cluster
}

func (f *fenced) shared() bool { return len(f.keys) > 2 }

// try watches the lock, runs the check and begins a transaction. MULTI is not sent together with
// the command: if it were refused, the command would run unchecked.
func (f *fenced) try() (Reply, *Step) {
	late := !f.until.IsZero() && time.Now().After(f.until)
	if f.tries == 0 || late && f.tries <= sharedFenceTries-sharedFenceLeast {
		return f.givenUp(), nil
	}
	f.tries--
	steps := [][][]byte{wordsOf("WATCH", f.keys[0]), f.checkCall(), wordsOf("MULTI")}
	if f.shared() { // FenceKey is written before it is watched
		watch := wordsOf(append([]string{"WATCH"}, f.keys...)...)
		steps = [][][]byte{f.checkCall(), watch, f.checkCall("verify"), wordsOf("MULTI")}
	}
	together := len(steps)
	if f.cfg.Cluster {
		together -= 2 // after WATCH, MULTI would keep it from following a slot that has moved
	}
	return Reply{}, &Step{Asks: Commands{List: steps[:together], Further: true},
		Finish: func(first script.Answer, err error) (Reply, *Step) {
			if err != nil || together == len(steps) {
				return f.begun(first.Raw, err)
			}
			return Reply{}, &Step{Asks: Commands{List: steps[together:]},
				Finish: func(rest script.Answer, err error) (Reply, *Step) {
					return f.begun(append(first.Raw, rest.Raw...), err)
				}}
		}}
}

// again tries again because the lock has changed.
func (f *fenced) again() (Reply, *Step) {
	if !f.cfg.Cluster {
		return f.try()
	}
	return Reply{}, &Step{Asks: Pause(f.pause),
		Finish: func(script.Answer, error) (Reply, *Step) { return f.try() }}
}

func (f *fenced) givenUp() Reply {
	if f.cfg.Cluster {
		return errorReply(syntax.UsageError("TRYAGAIN the lock's slot is moving, or the lock is " +
			"being changed all the time: the command was not run"))
	}
	return errorReply(syntax.UsageError("ERR the lock is being changed all the time: " +
		"the command was not run, try again"))
}

// checkCall is one call of check.lua.
func (f *fenced) checkCall(args ...string) [][]byte {
	how, check := "EVALSHA", script.CheckScript.SHA
	if f.bySource {
		how, check = "EVAL", script.CheckScript.Source
	}
	call := append([]string{how, check, strconv.Itoa(len(f.keys))}, f.keys...)
	args = append([]string{strconv.FormatInt(f.token, 10)}, args...)
	return wordsOf(append(call, f.Scripts.List(args))...)
}

// The results of a check that are handled, and never sent to a client.
var (
	errChanged = errors.New("the time of the shared lock's token has changed")
	errShared  = errors.New("the lock is shared: it is fenced in another way")
	errNotHeld = errors.New("the token doesn't hold the lock")
)

// begun goes on when the check has been answered. If that has failed, no transaction or watch is
// left. The connection goes on if there are replies, though one tells of a failure: a node of a
// cluster is lost, or what is behind another proxy.
func (f *fenced) begun(replies [][]byte, err error) (Reply, *Step) {
	failed := func([][]byte, error) (Reply, *Step) { return errorReply(err), nil }
	switch {
	case err != nil && replies != nil:
		return discard(func([][]byte, error) (Reply, *Step) {
			return do(failed, wordsOf("UNWATCH"))
		})
	case err != nil:
		return failed(nil, nil)
	}
	var written error
	if f.shared() {
		written, replies = checkedHeld(replies[0], f), replies[1:]
	}
	watched, checked, began := status(replies[0]), checkedHeld(replies[1], f), status(replies[2])
	if written != nil {
		checked = written
	}
	why := cmp.Or(watched, checked, began)
	ended := func(_ [][]byte, err error) (Reply, *Step) {
		return f.checkFailed(cmp.Or(err, why))
	}
	switch {
	case why == nil:
		return f.run()
	case began == nil:
		return discard(ended)
	case watched == nil:
		return do(ended, wordsOf("UNWATCH"))
	}
	return ended(nil, nil)
}

// checkFailed says what follows a check that has failed.
func (f *fenced) checkFailed(err error) (Reply, *Step) {
	switch said, _ := err.(script.ServerError); {
	case script.HasCode(said, "NOSCRIPT"):
		f.bySource = true
	case err == errShared:
		f.keys = append(f.keys, keyname.Fence([]byte(f.keys[0]), f.token))
		f.tries, f.pause = sharedFenceTries, fenceMoves/sharedFenceTries
		f.until = time.Now().Add(sharedFenceFor)
	case err == errChanged:
	case err == errNotHeld:
		f.seen.counters.Fenced.Add(1)
		return errorReply(failure.FencedError{Key: f.keys[0], Token: f.token}), nil
	default:
		return errorReply(err), nil
	}
	return f.try()
}

// checkedHeld is nil if check.lua says that the token holds the lock.
func checkedHeld(raw []byte, f *fenced) error {
	v, err := script.ParseReply(raw)
	if err != nil {
		return err
	}
	switch {
	case v.Type != ':':
		return script.Unexpected(script.CheckScript, v)
	case v.Int == 0:
		return errNotHeld
	case v.Int == 2 && !f.shared():
		return errShared
	case v.Int == 3 || f.shared() && v.Int == 1:
		return errChanged
	}
	return nil
}

// run runs the command in the transaction and ends it. The reply is the command's, unless the
// lock's key had changed: then nothing was run.
func (f *fenced) run() (Reply, *Step) {
	return do(func(replies [][]byte, err error) (Reply, *Step) {
		if err != nil {
			return errorReply(err), nil
		}
		queued, raw := replies[0], replies[1]
		if bytes.HasPrefix(raw, []byte("-")) && !bytes.HasPrefix(raw, []byte("-EXECABORT")) {
			// The user may not EXEC.
			return discard(func(_ [][]byte, err error) (Reply, *Step) {
				if err != nil {
					return errorReply(err), nil
				}
				return f.ran(queued, raw)
			})
		}
		return f.ran(queued, raw)
	}, f.command, wordsOf("EXEC"))
}

// ran makes the reply of the answers to the command and to EXEC.
func (f *fenced) ran(queued, raw []byte) (Reply, *Step) {
	switch {
	case bytes.HasPrefix(queued, []byte("-ASK ")), bytes.HasPrefix(queued, []byte("-MOVED ")):
		return f.again() // the slot is moving
	case !bytes.HasPrefix(queued, []byte("+QUEUED")):
		raw = queued // the upstream refuses the command
	case bytes.HasPrefix(raw, []byte("*1\r\n")):
		raw = raw[len("*1\r\n"):]
	case bytes.HasPrefix(raw, []byte("*-1")), bytes.HasPrefix(raw, []byte("_")):
		return f.again()
	} // otherwise an error: nothing was run
	return Reply{Raw: raw}, nil
}

// do sends commands, and goes on with their replies.
func do(
	then func(replies [][]byte, err error) (Reply, *Step), commands ...[][]byte,
) (Reply, *Step) {
	return Reply{}, &Step{Asks: Commands{List: commands}, Finish: func(
		a script.Answer, err error,
	) (Reply, *Step) {
		return then(a.Raw, err)
	}}
}

// discard ends a transaction. If the user may not DISCARD, it is EXEC: nothing has been queued, or
// it was refused.
func discard(then func(replies [][]byte, err error) (Reply, *Step)) (Reply, *Step) {
	return do(func(replies [][]byte, err error) (Reply, *Step) {
		if err == nil && status(replies[0]) != nil {
			return do(then, wordsOf("EXEC"))
		}
		return then(replies, err)
	}, wordsOf("DISCARD"))
}

// status is nil for the reply OK, and an error for any other.
func status(raw []byte) error {
	if bytes.HasPrefix(raw, []byte("+OK")) {
		return nil
	}
	v, err := resp.ParseValue(raw)
	if err == nil {
		err = script.ErrorOf(v.Text)
	}
	return err
}
