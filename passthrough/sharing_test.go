package passthrough

import (
	"math"
	"testing"
	"testing/synctest"
	"time"
)

// Redis holds back writes until the latest end of all pauses that it was told of, and until it is
// told to go on, however far off that end is.
func TestPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s sharing
		for _, longest := range []time.Duration{time.Minute, math.MaxInt64} {
			s.pause(longest)
			s.pause(time.Millisecond)
			s.pause(0)
			time.Sleep(time.Second)
			if s.allowed() {
				t.Errorf("lanes are used though writes are paused for %v", longest)
			}
			s.unpause()
			if !s.allowed() {
				t.Error("lanes are not used though the pause was ended")
			}
		}
		s.pause(time.Minute)
		time.Sleep(2 * time.Minute)
		if !s.allowed() {
			t.Error("lanes are not used though the pause is over")
		}
	})
}
