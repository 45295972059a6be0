package lockcmd

import (
	"strings"
	"testing"

	"lockproxy/internal/test/wire"
	"lockproxy/lockcmd/held"
	"lockproxy/lockcmd/keyname"
	"lockproxy/lockcmd/script"
)

// LOCKSCAN finds one lock. It leaves out what the user may not see and what is no lock. Any other
// error is the reply.
func TestScanReportsErrors(t *testing.T) {
	l := newTestLocks()
	for said, skipped := range map[string]bool{
		"NOPERM this user has no permissions":                                              true,
		"WRONGTYPE Key holds a value that is not a lock: choose another name for the lock": true,
		"LOADING Redis is loading the dataset in memory":                                   false,
		"BUSY Redis is busy running a script":                                              false,
		"MASTERDOWN Link with MASTER is down":                                              false,
		"UPSTREAM the node was lost, and nothing was sent":                                 false,
		"ERR Error running script: user_script:1: out of mercy":                            false,
	} {
		step := l.beginScan(Client{Holder: &held.Holder{}}, [][]byte{[]byte("0")})
		found := wire.Append([]byte("*2\r\n$1\r\n0\r\n"), keyname.Record([]byte("job")))
		_, step = step.Finish(script.Answer{Raw: [][]byte{found}}, nil)
		reply, _ := step.Finish(script.Answer{Raw: [][]byte{[]byte("-" + said + "\r\n")}}, nil)
		switch {
		case skipped && (reply.Err != nil || len(reply.Elems[1].Elems) != 0):
			t.Errorf("%s: %+v, want no lock", said, reply)
		case !skipped && (reply.Err == nil || !strings.Contains(said, reply.Err.Error())):
			t.Errorf("%s: %+v, want the error", said, reply)
		}
	}
}
