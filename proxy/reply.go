package proxy

import (
	"errors"
	"strings"

	"github.com/tidwall/redcon"

	"lockproxy/internal/resp"
	"lockproxy/lockcmd"
)

// encodeReply is a lock command's answer in the client's protocol version.
func encodeReply(name string, r lockcmd.Reply, proto int) []byte {
	switch {
	case r.Err != nil:
		return encodeError(name, r.Err)
	case r.Null && proto == 3:
		return []byte("_\r\n")
	case r.Null:
		return redcon.AppendNull(nil)
	}
	return redcon.AppendInt(nil, r.Int)
}

// encodeLost is the reply to a relayed request that failed for want of the upstream.
func encodeLost(err error) []byte { return encodeError("", err) }

// encodeError is the one place where errors become what a client reads. name is the lock command that failed, if it was one.
func encodeError(name string, err error) []byte {
	var (
		usage    lockcmd.UsageError
		server   lockcmd.ServerError
		protocol *resp.ProtocolError
	)
	text := err.Error()
	switch {
	case errors.As(err, &usage):
	case errors.As(err, &server):
		text = serverErrorText(name, text)
	case errors.As(err, &protocol):
		text = "ERR " + text
	default: // *passthrough.Error, *passthrough.Refused, an upstream that doesn't speak Redis
		text = "UPSTREAM " + text
	}
	return resp.AppendError(nil, text)
}

// serverErrorText passes on what the upstream said about a script, in terms of the command that the client sent.
func serverErrorText(name, text string) string {
	// Redis 7.0 and 7.2 word a denial inside a script differently, and neither begins it as elsewhere.
	if strings.Contains(text, "The user executing the script can't") || strings.Contains(text, "ACL failure in script") {
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
	errInMulti = lockcmd.UsageError("ERR Command not allowed inside a transaction")
	errOpaque  = lockcmd.UsageError("ERR lock commands can't be used on a connection that subscribed within MULTI: RESET it first")
)

// errSubscribed is Redis's own restriction for RESP2 connections that have subscribed.
func errSubscribed(name string) error {
	return lockcmd.UsageError("ERR Can't execute '" + name +
		"': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context")
}
