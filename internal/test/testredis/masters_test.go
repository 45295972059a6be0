package testredis

import "testing"

// A replica whose master is a replica by now is told of that one's master, and no other is.
func TestMasterAbove(t *testing.T) {
	const others = "a 127.0.0.1:1@2 master - 0 1 1 connected 0-9\n" +
		"b 127.0.0.1:2@3 slave a 0 1 1 connected\n"
	for line, want := range map[string]string{
		"c 127.0.0.1:3@4 myself,slave b 0 0 1 connected":  "a",
		"c 127.0.0.1:3@4 myself,slave a 0 0 1 connected":  "",
		"c 127.0.0.1:3@4 myself,master - 0 0 1 connected": "",
	} {
		if got := masterAbove(others + line + "\n"); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}
