package lockcmd

import "time"

// lazyTimer is a timer that is made when it is armed. Its zero value is not armed.
type lazyTimer struct {
	*time.Timer // nil until it is armed
	armed       bool
	at          time.Time // when it is due, if it is armed
}

// timerAfter is a timer that is due after d, or never if d is 0.
func timerAfter(d time.Duration) (t lazyTimer) {
	if d > 0 {
		t.arm(d)
	}
	return t
}

// due is nil, so never ready, until the timer is armed.
func (t *lazyTimer) due() <-chan time.Time {
	if t.Timer == nil {
		return nil
	}
	return t.C
}

func (t *lazyTimer) arm(d time.Duration) {
	if t.Timer == nil {
		t.Timer = time.NewTimer(d)
	} else {
		t.Reset(d)
	}
	t.armed, t.at = true, time.Now().Add(d)
}

// armSooner arms it, unless it is due sooner.
func (t *lazyTimer) armSooner(d time.Duration) {
	if !t.armed || time.Until(t.at) > d {
		t.arm(d)
	}
}

// stop ends it for good.
func (t *lazyTimer) stop() {
	if t.Timer != nil {
		t.Stop()
	}
}
