//go:build faults

package relay_test

import "testing"

// TestTorturePushes is TestHostilePushes, ten times as long.
func TestTorturePushes(t *testing.T) { pushedAtRandom(t, 600) }
