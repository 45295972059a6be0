//go:build faults

package relay_test

import (
	"testing"
	"time"
)

// TestFaultPushes is TestHostilePushes for half a minute each.
func TestFaultPushes(t *testing.T) { pushedAtRandom(t, 30*time.Second) }
