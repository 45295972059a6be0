package lockcmd

import (
	"strings"
	"time"

	"lockproxy/internal/resp"
	"lockproxy/lockcmd/keyname"
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

// mayBeLock reports whether a value can be the timestamp that LOCK writes: 10 or 13 digits. ONCE
// looks further only then.
func mayBeLock(value string) bool {
	return (len(value) == 10 || len(value) == 13) && strings.Trim(value, "0123456789") == ""
}

// lockAt is errIsLock if a value is LOCK's, by the answer to a GET of the lock record.
func lockAt(value string, record resp.Value) error {
	shared := record.IsError() && script.HasCode(script.ServerError(record.Text), "WRONGTYPE")
	if shared || !record.IsError() && script.Wrote(record.Text, value) {
		return errIsLock
	}
	return nil // or the client may not read the record: then nothing is known of a lock
}

// errIsLock says that ONCE was asked for the value of a key that a LOCK holds.
const errIsLock = script.ServerError("WRONGTYPE Key is a lock (of LOCK): " +
	"ONCE and DONE need a name of their own")

// readForAll reads the value for which w waits. If it is there, w has it, and all that wait here
// with w's login, but for those that have come since: a DEL that they know of may be later than
// what was read. Otherwise w asks for the claim at once, unless that is what it has just done.
func (l *waits) readForAll(s session, w *queue.Waiter) (there bool, err error) {
	asked, until := time.Now(), l.answerBy(s, w.Wait)
	value, there, err := valueOf(s.Get(w.Value, until))
	if !there {
		return false, err
	}
	if mayBeLock(value) {
		record, err := s.Get(keyname.Record([]byte(w.Value)), until)
		if err == nil {
			err = lockAt(value, record)
		}
		if err != nil {
			return false, err
		}
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
