//go:build faults

package faults_test

import (
	"testing"
	"time"
)

// Each cluster fault by itself, again and again while clients work.
func TestClusterLockFault(t *testing.T) {
	for _, f := range clusterFaults {
		t.Run(f.name, func(t *testing.T) {
			// so that a busy machine doesn't look like dead nodes
			c := startClusterUnderWork(t, 2*time.Second)
			for range 2 {
				c.inflict(t, f, 2)
			}
			c.finish(t, f.loses)
		})
	}
}

// Locks and data continue while slots move, a master is replaced by hand, and one is killed.
// TestClusterLockFault has the other faults.
func TestClusterLocksGoOn(t *testing.T) {
	t.Parallel()
	c := startClusterUnderWork(t, time.Second)
	for _, f := range clusterFaults {
		switch f.name {
		case "slots of hot keys migrate":
			c.inflict(t, f, 2)
		case "manual failover", "master killed":
			c.inflict(t, f, 1)
		}
	}
	c.finish(t, true)
}
