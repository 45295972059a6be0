package monotonic

import (
	"testing"
	"time"
)

func TestNow(t *testing.T) {
	// What the wall clock says can't be taken for it.
	if now := Now(); now <= 0 || now > int64(24*time.Hour) {
		t.Errorf("this process has run for %d ns", now)
	}
	then, clock := Now(), time.Now()
	time.Sleep(20 * time.Millisecond)
	if got, want := Since(then), time.Since(clock); got < 20*time.Millisecond ||
		got > want+10*time.Millisecond {
		t.Errorf("%v have gone by, the clock says %v", got, want)
	}
}
