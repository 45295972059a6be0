//go:build faults && linux

package faults_test

import (
	"testing"
	"time"

	"lockproxy/internal/testredis"
)

// A replica that takes over by Sentinel can lack what its master has acknowledged last, even when
// it is done by hand.
var sentinelFaults = []fault[*testredis.Group]{
	{"failover by hand", true, true, func(t *testing.T, g *testredis.Group, _ string) func() {
		old := g.Master()
		g.Failover(t)
		g.WaitReplaced(t, old)
		return func() { g.InSync(t) }
	}},
	{"links to the master cut", false, false,
		func(t *testing.T, g *testredis.Group, _ string) func() {
			cut(g.Master())
			return nil
		}},
	{"master killed", true, true, func(t *testing.T, g *testredis.Group, _ string) func() {
		old := g.Master()
		old.Kill()
		master := g.WaitReplaced(t, old)
		return func() {
			old.Restart()
			old.Replicate(master)
			g.InSync(t)
		}
	}},
	{"master stopped", true, true, func(t *testing.T, g *testredis.Group, _ string) func() {
		old := g.Master()
		old.Pause()
		g.WaitReplaced(t, old)
		return func() {
			time.Sleep(300 * time.Millisecond)
			old.Resume()
			g.InSync(t) // Sentinels wait for 8 s before they make it a replica
		}
	}},
}
