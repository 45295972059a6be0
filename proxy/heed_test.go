package proxy

import (
	"testing"
	"time"
)

func TestLimitsIn(t *testing.T) {
	for _, c := range []struct{ buffers, memory, want string }{
		{"normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60", "0", ""},
		{"", "", ""},
		{"normal 1048576 0 0 slave 0 0 0", "0", "client-output-buffer-limit normal 1048576 0 0"},
		{"slave 0 0 0 normal 0 5 1", "5%", "client-output-buffer-limit normal 0 5 1 maxmemory-clients 5%"},
		{"normal 0 0 0", "1000", "maxmemory-clients 1000"},
	} {
		if got := limitsIn(c.buffers, c.memory); got != c.want {
			t.Errorf("%q, %q: got %q, want %q", c.buffers, c.memory, got, c.want)
		}
	}
}

func TestReserveWithinLimits(t *testing.T) {
	for _, c := range []struct {
		limits  upstreamLimits
		reserve int
		awake   time.Duration
	}{
		{upstreamLimits{}, -1, 0},
		{upstreamLimits{clients: 10000}, 9000, 0},
		{upstreamLimits{clients: 1}, 0, 0},
		{upstreamLimits{timeout: time.Minute}, -1, 20 * time.Second},
		{upstreamLimits{timeout: time.Second}, -1, time.Second / 3},
	} {
		if got := c.limits.reserve(); got != c.reserve {
			t.Errorf("%+v: a reserve of %d, want %d", c.limits, got, c.reserve)
		}
		if got := c.limits.awake(); got != c.awake {
			t.Errorf("%+v: silent for %v, want %v", c.limits, got, c.awake)
		}
	}
}
