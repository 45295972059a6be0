package fence

import (
	"bytes"
	"testing"

	"lockproxy/lockcmd/chain"
	"lockproxy/lockcmd/keyname"
	"lockproxy/lockcmd/script"
)

// What FENCE watches, and that it does so before it checks the token: the lock's key, and for a
// shared lock also its record and a key that expires with the token. If it watched others, a holder
// that loses the lock between the two round trips would still write.
func TestWatches(t *testing.T) {
	f := &Fences{Scripts: script.NewMaker(script.Config{}), Can: func([][]byte) bool { return true }}
	step := f.Begin(chain.Words("job", "7", "SET", "k", "v"))
	sends := func(want ...string) {
		t.Helper()
		for i, text := range want {
			if i >= len(step.Do) || !bytes.HasPrefix(bytes.Join(step.Do[i], []byte(" ")), []byte(text)) {
				t.Fatalf("%q, want %q in place %d", step.Do, text, i)
			}
		}
	}
	answer := func(raw ...string) {
		var a script.Answer
		for _, r := range raw {
			a.Raw = append(a.Raw, []byte(r+"\r\n"))
		}
		_, step = step.Finish(a, nil)
	}
	record, expires := keyname.Record([]byte("job")), keyname.Fence([]byte("job"), 7)
	sends("WATCH job", "EVALSHA ", "MULTI")
	if n := len(step.Do[0]); n != 2 || string(step.Do[0][1]) != "job" {
		t.Errorf("%q is watched", step.Do[0])
	}
	answer("+OK", ":2", "+OK") // it is shared
	sends("DISCARD")
	answer("+OK")
	sends("EVALSHA ", "WATCH job "+record+" "+expires, "EVALSHA ", "MULTI")
}
