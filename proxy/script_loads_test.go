package proxy

import (
	"testing"
	"testing/synctest"
	"time"
)

// A session whose load hangs holds up the next one for a second, and nobody after that.
func TestScriptLoadThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l scriptLoads
		endFirst, mine := l.begin(false, "", time.Now())
		if !mine {
			t.Fatal("the first does not load")
		}
		began := time.Now()
		endSecond, mine := l.begin(false, "", time.Now())
		if took := time.Since(began); !mine || took != maxLoadWait {
			t.Fatalf("the second loads: %v, after %v", mine, took)
		}
		endSecond()
		began = time.Now()
		if _, mine = l.begin(false, "", began.Add(-time.Millisecond)); mine || time.Since(began) > 0 {
			t.Errorf("the third loads: %v, after %v", mine, time.Since(began))
		}
		endFirst() // it must not be taken for the load of another
		time.Sleep(time.Second)
		endLast, mine := l.begin(false, "", time.Now())
		if !mine {
			t.Fatal("what is missing again is not loaded")
		}
		endLast()
	})
}
