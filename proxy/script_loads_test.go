package proxy

import (
	"testing"
	"testing/synctest"
	"time"

	"lockproxy/internal/eventloop"
)

// told counts how often it was told.
type told int

func (n *told) Answered(*eventloop.Iteration) { *n++ }

// A load that hangs holds up the others for a second. Then the next that finds the script missing
// loads it.
func TestScriptLoadThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l scriptLoads
		var n told
		missing := time.Now()
		first, mine := l.begin(false, "", missing, &n)
		if !mine {
			t.Fatal("the first session does not load")
		}
		if load, mine := l.begin(false, "", missing, &n); mine || load != first {
			t.Fatal("the second does not wait for the first")
		}
		<-first.done
		synctest.Wait()
		if took := time.Since(missing); took != maxLoadWait || n != 1 {
			t.Errorf("it is told %d times, after %v", n, took)
		}
		if _, mine = l.begin(false, "", missing, &n); mine {
			t.Error("what was asked for before the end is loaded again")
		}
		second, mine := l.begin(false, "", time.Now(), &n)
		if !mine {
			t.Fatal("what is missing after the end is not loaded")
		}
		l.end(first, nil)
		if load, mine := l.begin(false, "", time.Now(), &n); mine || load != second {
			t.Error("the late end of the first is taken for that of the second")
		}
		if l.end(second, nil); n != 2 {
			t.Errorf("told %d times", n)
		}
	})
}
