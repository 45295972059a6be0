package lockcmd

import (
	"time"

	"lockproxy/internal/resp"
	"lockproxy/lockcmd/queue"
	"lockproxy/lockcmd/script"
)

// A client that waits for a value (ONCE … WAIT) is the waiter for its claim: see once.go.

// valueOf is what a GET has answered.
func valueOf(v resp.Value, failed error) (value string, there bool, err error) {
	if failed == nil && v.IsError() {
		failed = script.ErrorOf(v.Text)
	}
	return string(v.Text), failed == nil && !v.IsNull(), failed
}

// readForAll reads the value for which w waits. If it is there, w has it, and all that wait here
// with w's login, but for those that have come since: a DEL that they know of may be later than
// what was read. Otherwise w asks for the claim at once, unless that is what it has just done.
func (l *waits) readForAll(s session, w *queue.Waiter) (there bool, err error) {
	asked := time.Now()
	value, there, err := valueOf(s.Get(w.Value, w.AnswerBy(asked)))
	if !there {
		return false, err
	}
	given, refused := w.Serve(&value, asked)
	if given { // by a release, while the value was read
		l.releases.releaseAbandoned(lockOf(w, w.Token))
	}
	return true, refused
}

// handedClaim follows a wait that has ended with err. A waiter that was handed the claim looks
// whether others have stored a value meanwhile: only the script of a poll knows.
func (l *waits) handedClaim(s session, w *queue.Waiter, err error) error {
	if !w.State().Has || !w.WasHanded() {
		return err
	}
	if _, err = l.readForAll(s, w); err != nil {
		w.GiveUp()
		if !w.Before {
			l.releases.releaseAbandoned(lockOf(w, w.Token))
		}
	}
	return err
}
