package proxy

import "testing"

func TestLimitsIn(t *testing.T) {
	for _, c := range []struct{ buffers, memory, timeout, want string }{
		{"normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60", "0", "0", ""},
		{"", "", "", ""},
		{"normal 1048576 0 0 slave 0 0 0", "0", "0",
			"client-output-buffer-limit normal 1048576 0 0"},
		{"slave 0 0 0 normal 0 5 1", "5%", "0",
			"client-output-buffer-limit normal 0 5 1, maxmemory-clients 5%"},
		{"normal 0 0 0", "1000", "300", "maxmemory-clients 1000, timeout 300"},
		{"normal 0 0 0", "0", "300", "timeout 300"},
	} {
		if got := limitsIn(c.buffers, c.memory, c.timeout); got != c.want {
			t.Errorf("%q, %q, %q: got %q, want %q", c.buffers, c.memory, c.timeout, got, c.want)
		}
	}
}
