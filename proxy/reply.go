package proxy

import (
	"errors"
	"strconv"
	"strings"

	"github.com/tidwall/redcon"

	"lockproxy/internal/resp"
	"lockproxy/lockcmd/chain"
	"lockproxy/lockcmd/deadlock"
	"lockproxy/lockcmd/failure"
	"lockproxy/lockcmd/script"
	"lockproxy/lockcmd/syntax"
)

// encodeReply is the answer to a lock command in the client's protocol version.
func encodeReply(name string, r chain.Reply, proto int) []byte {
	if r.Kind != chain.ErrorReply {
		return appendReply(nil, r, proto)
	}
	var server script.ServerError
	if errors.As(r.Err, &server) {
		return resp.AppendError(nil, serverErrorText(name, r.Err.Error()))
	}
	return encodeError(r.Err)
}

func appendReply(dst []byte, r chain.Reply, proto int) []byte {
	switch r.Kind {
	case chain.NullReply:
		if proto == 3 {
			return append(dst, "_\r\n"...)
		}
		return redcon.AppendNull(dst)
	case chain.IntReply:
		return redcon.AppendInt(dst, r.Int)
	case chain.BulkReply:
		return redcon.AppendBulkString(dst, r.Text)
	case chain.StatusReply:
		return redcon.AppendString(dst, r.Text)
	case chain.RawReply:
		return append(dst, r.Raw...)
	case chain.MapReply:
		if proto == 3 {
			dst = append(strconv.AppendInt(append(dst, '%'), int64(len(r.Elems)/2), 10), "\r\n"...)
			break
		}
		fallthrough
	default:
		dst = redcon.AppendArray(dst, len(r.Elems))
	}
	for _, elem := range r.Elems {
		dst = appendReply(dst, elem, proto)
	}
	return dst
}

// encodeLockLost is the push that tells a RESP3 client that a session lock has been lost.
func encodeLockLost(key string, token int64) []byte {
	out := redcon.AppendBulkString([]byte(">3\r\n"), "locklost")
	return redcon.AppendInt(redcon.AppendBulkString(out, key), token)
}

// encodeError is the one place where the proxy's errors become what a client reads.
func encodeError(err error) []byte {
	var (
		usage    syntax.UsageError
		fenced   failure.FencedError
		missing  script.NoReplicasError
		deadlock deadlock.Error
		protocol *resp.ProtocolError
	)
	text := err.Error()
	switch {
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
	for _, sent := range []string{"'evalsha'", "'eval'"} {
		if strings.HasPrefix(text, "ERR Can't execute "+sent) {
			text = strings.Replace(text, sent, "'"+name+"'", 1)
		}
	}
	return text
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
