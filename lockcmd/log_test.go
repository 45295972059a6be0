package lockcmd

import (
	"testing"
	"time"
)

// However many lines are to be logged, so many are within a second, and the next says how many were
// left out.
func TestLogLimit(t *testing.T) {
	var limit logLimit
	now := time.Unix(1000, 0)
	for second := range 3 {
		logged := 0
		for i := range 10 * maxLogLines {
			omitted, ok := limit.allow(now.Add(time.Duration(second) * time.Second))
			if ok {
				logged++
			}
			if want := int64(0); ok && i == 0 && second > 0 {
				if want = 9 * maxLogLines; omitted != want {
					t.Errorf("%d were left out, want %d", omitted, want)
				}
			}
		}
		if logged != maxLogLines {
			t.Errorf("%d lines in a second", logged)
		}
	}
}
