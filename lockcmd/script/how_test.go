package script

import (
	"testing"
	"time"
)

func TestHow(t *testing.T) {
	for _, test := range []struct {
		how                       How
		exclusive, unlimited, all bool
	}{
		{"0", true, false, false}, {"p3", true, false, false}, {"f0", true, false, false},
		{"s0", false, true, false}, {"sp2", false, true, false}, {"l0", false, false, false},
		{"a0", true, false, true}, {"af0", true, false, true},
	} {
		h := test.how
		if h.Exclusive() != test.exclusive || h.Unlimited() != test.unlimited ||
			h.All() != test.all {
			t.Errorf("%q: exclusive %v, unlimited %v, all %v", h, h.Exclusive(), h.Unlimited(),
				h.All())
		}
	}
	for how, want := range map[How]time.Duration{"0": 0, "sp2": 200 * time.Millisecond,
		"af20": 2 * time.Second, "": 0} {
		if got := how.Way(); got != want {
			t.Errorf("%q: %v, not %v", how, got, want)
		}
	}
	for want, got := range map[How]How{"0": NewHow(false, false, false, 0), "p0": NewHow(false, true, true, 0),
		"f0": NewHow(true, true, false, 0), "12": NewHow(false, false, false, 12),
		"t3": NewHow(false, false, true, 3)} {
		if got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
}
