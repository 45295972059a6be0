package monotonic

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestNow(t *testing.T) {
	// What the wall clock says can't be taken for it.
	if now := Now(); now <= 0 || now > int64(24*time.Hour) {
		t.Errorf("this process has run for %d ns", now)
	}
	then, clock := Now(), time.Now()
	time.Sleep(20 * time.Millisecond)
	if got, most := Since(then), Of(time.Now())-Of(clock); got < 20*time.Millisecond ||
		Of(clock) < then || Since(then) < time.Duration(most) {
		t.Errorf("%v have gone by, the clock says at most %v", got, time.Duration(most))
	}
}

func TestVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		then, clock := Now(), time.Now()
		time.Sleep(time.Hour)
		if then <= 0 || Since(then) != time.Hour || Of(clock) != then {
			t.Errorf("began at %d, %d, then %v", then, Of(clock), Since(then))
		}
	})
}
