package lockcmd

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"strings"

	"lockproxy/internal/resp"
)

// fenceTries bounds how often a fenced transaction begins again because the lock's key has changed,
// mostly by a renewal.
const fenceTries = 16

// runFence is FENCE: two round trips. The first watches the lock, runs check.lua and begins a
// transaction. The second runs the command in it. If anything happens to the lock in between, its
// expiry too, EXEC runs nothing. The reply is the command's own, byte for byte; a script would lose
// some of it (null arrays, large numbers, doubles).
//
// Only the lock's key is watched. Every acquisition, release and expiry changes it. Waiters change
// only the lock record.
func (l *Locks) runFence(_ context.Context, s Session, args [][]byte) Reply {
	key := string(args[0])
	token, ok := resp.ParseInt(args[1])
	if !ok {
		return errorReply(errInteger)
	}
	if !l.cfg.CanFence(args[2:]) {
		return errorReply(UsageError("ERR '" + strings.ToLower(string(args[2])) +
			"' can't be fenced: it blocks, or is not one that a transaction runs as data"))
	}
	keys := []string{key, RecordKey(args[0])}
	proof := l.list([]string{strconv.FormatInt(token, 10)})
	check := words("EVALSHA", checkScript.SHA, "2", keys[0], keys[1], proof)
	for range fenceTries {
		err := l.beginFenced(s, args[0], check)
		if said, ok := err.(ServerError); ok && hasCode(said, "NOSCRIPT") {
			check = words("EVAL", checkScript.Source, "2", keys[0], keys[1], proof)
			continue
		}
		if err == errNotHeld {
			l.counters.fenced.Add(1)
			err = FencedError{key, token}
		}
		if err != nil {
			return errorReply(err)
		}
		raw, err := l.fenced(s, args[2:])
		if err != nil {
			return errorReply(err)
		}
		if raw != nil {
			return Reply{Kind: RawReply, Raw: raw}
		}
	}
	return errorReply(UsageError("ERR the lock is being changed all the time: " +
		"the command was not run, try again"))
}

// errNotHeld says that a token does not hold its lock.
var errNotHeld = errors.New("the token doesn't hold the lock")

// beginFenced watches a lock, runs the check and begins a transaction. MULTI is not sent together
// with the command: if it were refused, the command would run unchecked. After an error nothing is
// left.
func (l *Locks) beginFenced(s Session, key []byte, check [][]byte) error {
	steps := [][][]byte{{[]byte("WATCH"), key}, check, words("MULTI")}
	together := len(steps)
	if l.cfg.Cluster {
		together = 1 // behind WATCH, MULTI would keep it from following a slot that has moved
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
	watched, checked, began := status(replies[0]), checkedHeld(replies[1]), status(replies[2])
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
func checkedHeld(raw []byte) error {
	v, err := resp.ParseValue(raw)
	if err == nil && v.IsError() {
		err = errorOf(v.Text)
	}
	if err != nil {
		return err
	}
	held, err := ints(checkScript, 1, v)
	if err == nil && held[0] == 0 {
		err = errNotHeld
	}
	return err
}

// fenced runs a command in the transaction and ends it. It returns the command's reply, or nil if
// the lock's key had changed and nothing was run.
func (l *Locks) fenced(s Session, command [][]byte) ([]byte, error) {
	replies, err := s.Do(command, words("EXEC"))
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

// status is the error for a reply, nil if it is OK.
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
