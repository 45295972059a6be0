package lockcmd

import (
	"strings"
	"time"

	"lockproxy/internal/resp"
	"lockproxy/lockcmd/held"
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
func (l *waits) readForAll(
	t *turn, w *queue.Waiter, then func(there bool, err error) (Reply, *Step),
) (Reply, *Step) {
	asked := time.Now()
	serve := func(value string) (Reply, *Step) {
		given, refused := w.Serve(&value, asked)
		if !given {
			return then(true, refused)
		}
		// By a release, while the value was read.
		return t.release([]*held.Lock{lockOf(w, w.Token)}, func() (Reply, *Step) {
			return then(true, refused)
		})
	}
	return t.get(w.Value, func(v resp.Value, failed error) (Reply, *Step) {
		value, there, err := valueOf(v, failed)
		switch {
		case !there:
			return then(false, err)
		case !mayBeLock(value):
			return serve(value)
		}
		return t.get(keyname.Record([]byte(w.Value)), func(record resp.Value, err error) (Reply, *Step) {
			if err == nil {
				err = lockAt(value, record)
			}
			if err != nil {
				return then(false, err)
			}
			return serve(value)
		})
	})
}

// get asks for the value of a key.
func (t *turn) get(key string, then func(resp.Value, error) (Reply, *Step)) (Reply, *Step) {
	ask := Commands{List: [][][]byte{wordsOf("GET", key)}, Reads: true}
	return t.through(Reply{}, &Step{Asks: ask,
		Finish: func(a script.Answer, err error) (Reply, *Step) {
			var v resp.Value
			if err == nil {
				v, err = resp.ParseValue(a.Raw[0])
			}
			return then(v, err)
		}})
}

// handedClaim is when a wait ends with a claim that w was handed. It looks whether others have
// stored a value meanwhile: only the script of a poll knows.
func (l *waits) handedClaim(t *turn, w *queue.Waiter) (Reply, *Step) {
	return l.readForAll(t, w, func(_ bool, err error) (Reply, *Step) {
		if err == nil {
			return t.departed(nil)
		}
		var list []*held.Lock
		if w.GiveUp(); !w.Before {
			list = append(list, lockOf(w, w.Token))
		}
		return t.release(list, func() (Reply, *Step) { return t.departed(err) })
	})
}
