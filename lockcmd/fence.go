package lockcmd

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"lockproxy/internal/resp"
)

// fenceTries bounds how often a fenced transaction begins again because the lock's key has changed,
// mostly by a renewal.
const fenceTries = 16

// sharedFenceTries and sharedFenceFor are the same for a shared lock, where each change of its
// holders counts: with dozens of them far from Redis, that is one in most round trips.
const (
	sharedFenceTries = 256
	sharedFenceFor   = 2 * time.Second
)

// fenceMoves is how long FENCE tries in a cluster: EXEC also runs nothing while the lock's slot
// moves and the command's keys are not all at one node.
const fenceMoves = 500 * time.Millisecond

// runFence is FENCE: two round trips. The first watches the lock, runs check.lua and begins a
// transaction. The second runs the command in it. If the lock changes or expires in between, EXEC
// runs nothing. The reply is the command's own, byte for byte; a script would lose some of it (null
// arrays, large numbers, doubles).
//
// Only the lock's key is watched. Every acquisition, release and expiry changes it. Waiters change
// only the lock record. A shared lock's other holders change the key, too: there FENCE also watches
// the record, and a separate key that expires with the token.
func (l *Locks) runFence(ctx context.Context, s Session, args [][]byte) Reply {
	key := string(args[0])
	token, ok := resp.ParseInt(args[1])
	if !ok {
		return errorReply(integerError(args[1], wantToken))
	}
	if !l.cfg.CanFence(args[2:]) {
		return errorReply(UsageError("ERR '" + strings.ToLower(string(args[2])) +
			"' can't be fenced: it blocks, or is not one that a transaction runs as data"))
	}
	f := fencedCommand{keys: []string{key, RecordKey(args[0])},
		token: strconv.FormatInt(token, 10), command: args[2:]}
	tries, pause, began, until := fenceTries, fenceMoves/fenceTries, time.Now(), time.Time{}
	for tries > 0 && (until.IsZero() || time.Now().Before(until)) && !overdue(ctx, began) {
		tries--
		err := l.beginFenced(s, &f)
		switch said, _ := err.(ServerError); {
		case hasCode(said, "NOSCRIPT"):
			f.bySource = true
			continue
		case err == errShared:
			f.keys = append(f.keys, fenceKey(args[0], token))
			tries, pause = sharedFenceTries, fenceMoves/sharedFenceTries
			until = time.Now().Add(sharedFenceFor)
			continue
		case err == errChanged:
			continue
		case err == errNotHeld:
			l.counters.fenced.Add(1)
			return errorReply(FencedError{key, token})
		case err != nil:
			return errorReply(err)
		}
		raw, err := f.run(s)
		if err != nil {
			return errorReply(err)
		}
		if raw != nil {
			return Reply{Kind: RawReply, Raw: raw}
		}
		if l.cfg.Cluster {
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
		}
	}
	if l.cfg.Cluster {
		return errorReply(UsageError("TRYAGAIN the lock's slot is moving, or the lock is being " +
			"changed all the time: the command was not run"))
	}
	return errorReply(UsageError("ERR the lock is being changed all the time: " +
		"the command was not run, try again"))
}

// fencedCommand is a command to be fenced.
type fencedCommand struct {
	keys     []string // the lock's, its record's, and for a shared lock fenceKey
	token    string
	bySource bool // the upstream does not know the script's hash
	command  [][]byte
}

func (f *fencedCommand) shared() bool { return len(f.keys) > 2 }

// checkCall is one call of check.lua.
func (l *Locks) checkCall(f *fencedCommand, args ...string) [][]byte {
	how, script := "EVALSHA", checkScript.SHA
	if f.bySource {
		how, script = "EVAL", checkScript.Source
	}
	check := append([]string{how, script, strconv.Itoa(len(f.keys))}, f.keys...)
	return words(append(check, l.list(append([]string{f.token}, args...)))...)
}

// The results of a check that are handled, and never sent to a client.
var (
	errChanged = errors.New("the time of the shared lock's token has changed")
	errShared  = errors.New("the lock is shared: it is fenced in another way")
	errNotHeld = errors.New("the token doesn't hold the lock")
)

// beginFenced watches a lock, runs the check and begins a transaction. MULTI is not sent together
// with the command: if it were refused, the command would run unchecked. After an error no
// transaction or watch is left.
func (l *Locks) beginFenced(s Session, f *fencedCommand) error {
	steps := [][][]byte{words("WATCH", f.keys[0]), l.checkCall(f), words("MULTI")}
	if f.shared() { // fenceKey is written before it is watched
		watch := words(append([]string{"WATCH"}, f.keys...)...)
		steps = [][][]byte{l.checkCall(f), watch, l.checkCall(f, "verify"), words("MULTI")}
	}
	together := len(steps)
	if l.cfg.Cluster {
		together -= 2 // after WATCH, MULTI would keep it from following a slot that has moved
	}
	replies, err := s.Do(steps[:together]...)
	if err == nil && together < len(steps) {
		var rest [][]byte
		rest, err = s.Do(steps[together:]...)
		replies = append(replies, rest...)
	}
	if err != nil {
		return err
	}
	var written error
	if f.shared() {
		written, replies = checkedHeld(replies[0], f), replies[1:]
	}
	watched, checked, began := status(replies[0]), checkedHeld(replies[1], f), status(replies[2])
	if written != nil {
		checked = written
	}
	if watched == nil && checked == nil && began == nil {
		return nil
	}
	switch {
	case began == nil:
		err = discard(s)
	case watched == nil:
		_, err = s.Do(words("UNWATCH"))
	}
	for _, said := range []error{err, watched, checked, began} {
		if said != nil {
			return said
		}
	}
	return nil
}

// checkedHeld is nil if check.lua says that the token holds the lock.
func checkedHeld(raw []byte, f *fencedCommand) error {
	v, err := parseReply(raw)
	if err != nil {
		return err
	}
	switch {
	case v.Type != ':':
		return unexpected(checkScript, v)
	case v.Int == 0:
		return errNotHeld
	case v.Int == 2 && !f.shared():
		return errShared
	case v.Int == 3 || f.shared() && v.Int == 1:
		return errChanged
	}
	return nil
}

// run runs the command in the transaction and ends it. It returns the command's reply, or nil if
// the lock's key had changed: then nothing was run.
func (f *fencedCommand) run(s Session) ([]byte, error) {
	replies, err := s.Do(f.command, words("EXEC"))
	if err != nil {
		return nil, err
	}
	queued, raw := replies[0], replies[1]
	if bytes.HasPrefix(raw, []byte("-")) && !bytes.HasPrefix(raw, []byte("-EXECABORT")) {
		err = discard(s) // the user may not EXEC
	}
	switch {
	case err != nil:
		return nil, err
	case !bytes.HasPrefix(queued, []byte("+QUEUED")):
		return queued, nil // the upstream refuses the command
	case bytes.HasPrefix(raw, []byte("*1\r\n")):
		return raw[len("*1\r\n"):], nil
	case bytes.HasPrefix(raw, []byte("*-1")) || bytes.HasPrefix(raw, []byte("_")):
		return nil, nil
	}
	return raw, nil // an error: nothing was run
}

// discard ends a transaction. If the user may not DISCARD, it is EXEC: nothing has been queued, or
// it was refused.
func discard(s Session) error {
	replies, err := s.Do(words("DISCARD"))
	if err == nil && status(replies[0]) != nil {
		_, err = s.Do(words("EXEC"))
	}
	return err
}

// status is nil for the reply OK, and an error for any other.
func status(raw []byte) error {
	if bytes.HasPrefix(raw, []byte("+OK")) {
		return nil
	}
	v, err := resp.ParseValue(raw)
	if err == nil {
		err = errorOf(v.Text)
	}
	return err
}

// words makes a command.
func words(list ...string) [][]byte {
	command := make([][]byte, len(list))
	for i, word := range list {
		command[i] = []byte(word)
	}
	return command
}
