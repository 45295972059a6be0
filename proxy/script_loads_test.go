package proxy

import (
	"testing"
	"testing/synctest"
	"time"
)

// A load that hangs holds up one session for a second, and none after that.
func TestScriptLoadThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l scriptLoads
		missing := time.Now()
		endFirst, mine := l.begin(false, "", missing)
		if !mine {
			t.Fatal("the first session does not load")
		}
		endSecond, mine := l.begin(false, "", missing)
		if !mine {
			t.Fatal("the second does not load, although the first hangs")
		}
		endSecond()
		if _, mine = l.begin(false, "", missing); mine {
			t.Error("the third loads again: it has waited for the first")
		}
		endFirst()
		if _, mine = l.begin(false, "", missing); mine {
			t.Error("the end of the first is taken for another load")
		}
		endLast, mine := l.begin(false, "", time.Now())
		if !mine {
			t.Fatal("what is missing again is not loaded")
		}
		endLast()
	})
}
