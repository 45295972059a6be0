//go:build faults

package lockproxy_test

import (
	"testing"
	"time"
)

// Each thing that happens to a cluster by itself, again and again while clients work.
func TestClusterLockFault(t *testing.T) {
	for _, f := range clusterFaults {
		t.Run(f.name, func(t *testing.T) {
			c := startClusterUnderWork(t, 2*time.Second) // a busy machine mustn't look like dead nodes
			for range 2 {
				c.inflict(t, f, 2)
			}
			c.finish(t, f.loses)
		})
	}
}
