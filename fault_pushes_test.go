//go:build faults

package lockproxy_test

import (
	"testing"
	"time"
)

// TestFaultPushes is TestHostilePushes for a minute.
func TestFaultPushes(t *testing.T) { pushedAtRandom(t, time.Minute) }
