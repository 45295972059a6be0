package proxy

import (
	"errors"
	"strings"
	"testing"

	"lockproxy/internal/upstream"
	"lockproxy/lockcmd/failure"
	"lockproxy/lockcmd/script"
)

// The error of a node of a cluster, or of a lockproxy behind this one, comes as a text. It says
// whether the request may have run, as the error did of which the text was made.
func TestRelayedErrorsKeepTheirMeaning(t *testing.T) {
	for _, err := range []error{
		&upstream.Error{Addr: "a:1", Err: errors.New("refused")},
		&upstream.Error{Addr: "a:1", Sent: true, Err: errors.New("reset")},
		failure.LateError{}, failure.LateError{Answered: make(chan struct{})},
	} {
		text := strings.TrimSpace(strings.TrimPrefix(string(encodeError(err)), "-"))
		for _, relayed := range []error{
			script.ErrorOf([]byte(text)), upstream.FailureIn([]byte("-" + text + "\r\n")),
		} {
			if got, want := failure.MayHaveRun(relayed), failure.MayHaveRun(err); got != want {
				t.Errorf("%T %q may have run: %v, want %v", relayed, text, got, want)
			}
		}
	}
}
