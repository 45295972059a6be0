package virtualtest

import "testing"

// Part runs a part of a test in a bubble, where t.Run cannot be called. If it fails its name is
// logged. What the part starts ends with the whole test.
func Part(t *testing.T, name string, part func(t *testing.T)) {
	t.Helper()
	defer func(failed bool) {
		t.Helper()
		if t.Failed() && !failed {
			t.Logf("the above is of %q", name)
		}
	}(t.Failed())
	part(t)
}
