//go:build linux

package client

import (
	"testing"

	"lockproxy/internal/test/faults/history"
	"lockproxy/lockcmd/script"
)

// A lock that replicas have not confirmed, and that the proxy has not undone, may have been taken.
func TestOutcomeWithoutReplicas(t *testing.T) {
	for outcome, want := range map[string]history.Outcome{
		script.NotTaken:      history.Refused,
		script.NotUndone:     history.Unknown,
		script.StillOwners:   history.Unknown,
		script.UnsafeTimeout: history.Unknown,
	} {
		err := script.NoReplicasError{Want: script.Confirmation{Replicas: 1}, Outcome: outcome}
		var op history.Op
		setOutcome(&op, Reply{Type: '-', Text: err.Error()}, nil, nil)
		if op.Outcome != want {
			t.Errorf("%q: %s, want %s", err.Error(), op.Outcome, want)
		}
	}
}
