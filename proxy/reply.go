package proxy

import (
	"errors"
	"strings"

	"lockproxy/internal/resp"
	"lockproxy/lockcmd"
	"lockproxy/lockcmd/deadlock"
	"lockproxy/lockcmd/failure"
	"lockproxy/lockcmd/script"
	"lockproxy/lockcmd/syntax"
	"lockproxy/passthrough"
)

// encodeReply is the answer to a lock command in the client's protocol version.
func encodeReply(name string, r lockcmd.Reply, proto int) []byte {
	var server script.ServerError
	switch {
	case r.Raw != nil:
		return r.Raw
	case r.Err == nil:
		return resp.AppendValue(nil, r.Value, proto)
	case errors.As(r.Err, &server):
		return resp.AppendError(nil, serverErrorText(name, r.Err.Error()))
	}
	return encodeError(r.Err)
}

// encodeLockLost is the push that tells a RESP3 client that a session lock has been lost.
func encodeLockLost(key string, token int64) []byte {
	push := resp.Array(resp.Bulk("locklost"), resp.Bulk(key), resp.Int(token))
	push.Type = '>'
	return resp.AppendValue(nil, push, 3)
}

// encodeError is the one place where the proxy's errors become what a client reads.
func encodeError(err error) []byte {
	var (
		usage    syntax.UsageError
		fenced   failure.FencedError
		missing  script.NoReplicasError
		deadlock deadlock.Error
		protocol *resp.ProtocolError
		login    passthrough.LoginError
	)
	text := err.Error()
	switch {
	case errors.As(err, &login):
		text = login.Said()
	case errors.As(err, &usage), errors.As(err, &fenced), errors.As(err, &missing),
		errors.As(err, &deadlock), failure.IsUnblocked(err):
	case errors.As(err, &protocol):
		text = "ERR " + text
	default: // *upstream.Error, *upstream.Refused, an upstream that doesn't speak Redis
		text = "UPSTREAM " + text
	}
	return resp.AppendError(nil, text)
}

// serverErrorText is what the upstream said of a script, in terms of the command by that name,
// which the client sent.
func serverErrorText(name, text string) string {
	// Before 7.0 Redis wraps what a command within the script was answered.
	_, inner, ok := strings.Cut(text, ": -")
	if ok && strings.HasPrefix(text, "ERR Error running script") {
		text = inner
	}
	// Redis 7.0 and 7.2 word a denial inside a script differently, and both without NOPERM.
	if strings.Contains(text, "The user executing the script can't") ||
		strings.Contains(text, "ACL failure in script") {
		text = "NOPERM " + strings.TrimPrefix(strings.TrimPrefix(text, "NOPERM "), "ERR ")
	}
	if lacks := missingInScripts(text); lacks != "" {
		return lacks
	}
	for _, sent := range []string{"'evalsha'", "'eval'"} {
		if strings.HasPrefix(text, "ERR Can't execute "+sent) {
			text = strings.Replace(text, sent, "'"+name+"'", 1)
		}
	}
	return text
}

// missingInScripts is what a lock command is answered if the upstream does not know EVALSHA or what
// scripts call: its own text has the arguments, which tell nobody what to do. It is "" for all else.
func missingInScripts(text string) string {
	_, name, unknown := strings.Cut(text, "nknown command ")
	if name = strings.Trim(name, "'`\""); unknown && len(name) >= 4 {
		for _, sent := range []string{"EVALSHA", "EVAL", "SCRIPT"} {
			if len(name) >= len(sent) && strings.EqualFold(name[:len(sent)], sent) {
				return "ERR this Redis runs no scripts (unknown command '" + sent + "'), and lock " +
					"commands need them: see lockproxy check"
			}
		}
	}
	// Redis does not say which one. Valkey says no "Redis".
	if strings.Contains(text, "nknown Redis command called from") ||
		strings.Contains(text, "nknown command called from") {
		return "ERR this Redis does not know a command that the scripts of lock commands call, such " +
			"as TIME: see lockproxy check"
	}
	return ""
}

var (
	errInMulti = syntax.UsageError("ERR Command not allowed inside a transaction: " +
		"send it before MULTI, or use FENCE")
	errWatching = syntax.UsageError("ERR FENCE can't be used between WATCH and MULTI: " +
		"it is a transaction itself, and would end the WATCH")
	errUntracked = syntax.UsageError("ERR lock commands can't be used on a connection whose " +
		"state was changed in a way that can't be followed, within MULTI or by a request beyond " +
		"--client-buffer: RESET it first")
)

// errSubscribed is Redis's own restriction for RESP2 connections that have subscribed.
func errSubscribed(name string) error {
	return syntax.UsageError("ERR Can't execute '" + name + "': only (P|S)SUBSCRIBE / " +
		"(P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context")
}
