//go:build linux

package client

// What a reply says of the outcome of a command.

import (
	"errors"
	"os"
	"strings"

	"lockproxy/internal/test/faults/history"
	"lockproxy/internal/test/wire"
)

// setOutcome sets the outcome of an operation. judge gets replies that are not errors.
func setOutcome(op *history.Op, r Reply, err error, judge func(Reply, *history.Op)) {
	switch {
	case errors.Is(err, wire.ErrMalformed):
		op.Outcome, op.Got = history.Garbled, err.Error()
	case err != nil:
		op.Outcome, op.Got = history.Unknown, err.Error()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			op.Left = history.Now()
		}
	case r.IsError() && strings.HasPrefix(r.Text, "FENCED"):
		op.Outcome, op.Got = history.Fenced, r.Text
	case r.IsError() && strings.HasPrefix(r.Text, "UPSTREAM") && !saysUndone(r.Text),
		r.IsError() && strings.HasPrefix(r.Text, "NOREPLICAS") && mayHold(r.Text):
		op.Outcome, op.Got = history.Unknown, r.Text
	case r.IsError():
		op.Outcome, op.Got = history.Refused, r.Text
	default:
		op.Outcome = history.Garbled
		judge(r, op)
		if op.Outcome == history.Garbled {
			op.Got = r.String()
		}
	}
}

// saysUndone reports whether the proxy says of a request without an answer that it was not done.
func saysUndone(text string) bool {
	return strings.Contains(text, "nothing was sent") ||
		strings.Contains(text, "it was not acquired")
}

// mayHold reports whether what replicas have not confirmed may count nevertheless.
func mayHold(text string) bool {
	return strings.Contains(text, "is not known") ||
		strings.Contains(text, "on the upstream alone")
}

func judgeLock(r Reply, op *history.Op) {
	switch {
	case r.IsNull():
		op.Outcome = history.Null
	case r.Type == ':' && r.Int > 0 && r.Int < 1<<53:
		op.Outcome, op.Result = history.OK, r.Int
	}
}

func judgeFlag(r Reply, op *history.Op) {
	if r.Type == ':' && (r.Int == 0 || r.Int == 1) {
		op.Outcome, op.Result = history.OK, r.Int
	}
}

func judgeStatus(r Reply, op *history.Op) {
	if r.Type == '+' && r.Text == "OK" {
		op.Outcome = history.OK
	}
}

func judgeValue(r Reply, op *history.Op) {
	if r.IsNull() || r.Type == '$' {
		op.Outcome, op.Got = history.OK, r.Text
	}
}
