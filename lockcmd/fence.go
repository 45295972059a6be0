package lockcmd

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"lockproxy/internal/resp"
)

// FencedError says that a fenced command was not run, since its token doesn't hold the lock.
type FencedError struct {
	Key   string
	Token int64
}

func (e FencedError) Error() string {
	return fmt.Sprintf("FENCED token %d does not hold the lock '%s' (any more): the command was not run", e.Token, e.Key)
}

// fenceTries bounds how often a fenced transaction begins anew because the lock changed within it: a renewal, mostly.
const fenceTries = 16

// runFence is FENCE: the command runs in a transaction that watches the lock, begun only once a script has said that the token
// holds it. So it is atomic with the check: whatever happens to the lock in between, its expiry too, makes EXEC run nothing.
// The reply is the command's own, byte for byte; a script would have lost some of it (null arrays, large numbers, doubles).
func (l *Locks) runFence(s Session, args [][]byte) Reply {
	key := string(args[0])
	token, ok := resp.ParseInt(args[1])
	if !ok {
		return errorReply(errInteger)
	}
	if !s.CanFence(args[2]) {
		return errorReply(UsageError("ERR '" + strings.ToLower(string(args[2])) + "' can't be fenced: it is not one that a transaction runs as data"))
	}
	companion := []byte(CompanionKey(args[0]))
	for range fenceTries {
		if err := l.status(s, "+OK", []byte("WATCH"), args[0], companion); err != nil {
			return errorReply(err)
		}
		ints, err := l.evalInts(s, checkScript, 1, key, "", strconv.FormatInt(token, 10))
		if err != nil || ints[0] == 0 {
			if unwatch := l.unwatch(s); err == nil {
				err = unwatch
			}
			if err == nil {
				err = FencedError{key, token}
				l.tally.fenced.Add(1)
			}
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
	return errorReply(UsageError("ERR the lock is being changed all the time: the command was not run, try again"))
}

// fenced runs one command in a transaction. It returns the command's reply, or nil if the transaction found that a key it
// watched had changed, and ran nothing.
func (l *Locks) fenced(s Session, command [][]byte) ([]byte, error) {
	if err := l.status(s, "+OK", []byte("MULTI")); err != nil {
		l.unwatch(s) // what the client's own next transaction must not inherit
		return nil, err
	}
	queued, err := s.Do(command...)
	if err != nil {
		return nil, err
	}
	if !bytes.HasPrefix(queued, []byte("+QUEUED")) {
		// The upstream refuses the command as it would outside, and has aborted the transaction.
		return queued, l.discard(s)
	}
	raw, err := s.Do([]byte("EXEC"))
	switch {
	case err != nil:
		return nil, err
	case bytes.HasPrefix(raw, []byte("*1\r\n")):
		return raw[len("*1\r\n"):], nil
	case bytes.HasPrefix(raw, []byte("*-1")) || bytes.HasPrefix(raw, []byte("_")):
		return nil, nil
	}
	return raw, nil // an error: nothing was run
}

// unwatch ends the watch of the lock, which the client's own next transaction must not inherit. Where the user may not UNWATCH, a
// transaction of nothing does it.
func (l *Locks) unwatch(s Session) error {
	err := l.status(s, "+OK", []byte("UNWATCH"))
	var said ServerError
	if !errors.As(err, &said) || l.status(s, "+OK", []byte("MULTI")) != nil {
		return err
	}
	return l.discard(s)
}

// discard ends a transaction that the upstream has aborted. Where the user may not DISCARD, EXEC does it, which runs nothing then,
// and ends the transaction even if he may not EXEC either.
func (l *Locks) discard(s Session) error {
	raw, err := s.Do([]byte("DISCARD"))
	if err == nil && !bytes.HasPrefix(raw, []byte("+OK")) {
		_, err = s.Do([]byte("EXEC"))
	}
	return err
}

// status sends a command that must be answered with a status.
func (l *Locks) status(s Session, want string, command ...[]byte) error {
	raw, err := s.Do(command...)
	if err != nil || bytes.HasPrefix(raw, []byte(want)) {
		return err
	}
	v, err := resp.ParseValue(raw)
	if err == nil {
		err = errorOf(v.Text)
	}
	return err
}
