//go:build faults

package relay_test

import "testing"

// TestFaultPushes is TestHostilePushes, ten times as long.
func TestFaultPushes(t *testing.T) { pushedAtRandom(t, 600) }
