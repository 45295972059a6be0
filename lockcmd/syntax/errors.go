package syntax

import (
	"fmt"
	"strconv"
	"time"
)

// UsageError is about a malformed request. It has Redis's own wording and code.
type UsageError string

func (e UsageError) Error() string { return string(e) }

// Errors about arguments have Redis's own wording, then the argument and what was wanted of it.

// errCursor is about LOCKSCAN's.
const errCursor UsageError = "ERR invalid cursor"

// Errors say which of these an argument was wanted to be.
const (
	WantToken    = "a token"
	wantNumKeys  = "numkeys, 1 to 64"
	wantPositive = "COUNT, at least 1"
)

// Unexpected is the error for a word that is unknown or misplaced.
func Unexpected(word []byte, want string) UsageError {
	return syntaxError(word, "want "+want)
}

// syntaxError is the error for a word that is known, and says what is wrong with it here.
func syntaxError(word []byte, fault string) UsageError {
	return UsageError(fmt.Sprintf("ERR syntax error near %.64q: %s; see LOCK HELP", word, fault))
}

// NotInteger is the error for an argument that is no number, or none that is allowed.
func NotInteger(arg []byte, want string) UsageError {
	return UsageError(fmt.Sprintf("ERR value is not an integer or out of range: %.64q (%s)", arg,
		want))
}

// invalidExpire is the error for how long DONE's value is to live.
func invalidExpire(arg []byte, unit string, longest int64) UsageError {
	return UsageError(fmt.Sprintf("ERR invalid expire time in 'done' command: %.64q (%s, 1 to %d)",
		arg, unit, longest))
}

// secondsError is the error for a time that is none, or is not allowed: the timeout, or an
// option's.
func secondsError(name string, arg []byte, want string) UsageError {
	return UsageError(fmt.Sprintf("ERR %s is not a float or out of range: %.64q (seconds, %s)",
		name, arg, want))
}

// negative is the error for a time below 0. Of a timeout Redis says it in other words.
func negative(name string, arg []byte, want string) UsageError {
	if name == "timeout" {
		return UsageError(fmt.Sprintf("ERR timeout is negative: %.64q (seconds, %s)", arg, want))
	}
	return secondsError(name, arg, want)
}

// atMost names a limit in an error.
func atMost(limit time.Duration) string {
	return "at most " + strconv.FormatFloat(limit.Seconds(), 'f', -1, 64)
}
