package admin

import (
	"testing"
	"time"
)

// An address has five tries at once, and then one a second, whatever others do.
func TestTriesOfOneAddress(t *testing.T) {
	l, noon := newLogins("token"), time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	for _, at := range []struct {
		second  int
		allowed int // of 20 tries
	}{{0, 5}, {0, 0}, {1, 1}, {4, 3}, {3600, 5}} {
		allowed, now := 0, noon.Add(time.Duration(at.second)*time.Second)
		for range 20 {
			if l.allow("10.0.0.1", now) {
				allowed++
			}
		}
		if allowed != at.allowed {
			t.Errorf("second %d: %d tries, want %d", at.second, allowed, at.allowed)
		}
		if !l.allow("10.0.0.2", now) {
			t.Errorf("second %d: another address may not try", at.second)
		}
	}
}
