//go:build faults && linux

package faults_test

import (
	"testing"

	"lockproxy/internal/test/testredis"
)

type groupWork = underWork[*testredis.Group]

// A replica that takes over by Sentinel can lack what its master has acknowledged last, even when
// it is done by hand.
var sentinelFaults = []fault[*testredis.Group]{
	{"failover by hand", true, true, func(t *testing.T, u *groupWork, _ string) func() {
		g := u.servers
		old := g.Master()
		g.Failover(t)
		g.WaitReplaced(t, old)
		return func() { g.InSync(t) }
	}},
	{"links to the master cut", false, false,
		func(t *testing.T, u *groupWork, _ string) func() {
			cut(t, u.servers.Master(), u.plain)
			return nil
		}},
	{"master killed", true, true, func(t *testing.T, u *groupWork, _ string) func() {
		g := u.servers
		old := g.Master()
		old.Kill()
		master := g.WaitReplaced(t, old)
		return func() {
			old.Restart()
			old.Replicate(master)
			g.InSync(t)
		}
	}},
	{"master stopped", true, true, func(t *testing.T, u *groupWork, _ string) func() {
		g := u.servers
		old := g.Master()
		old.Pause()
		g.WaitReplaced(t, old)
		return func() {
			u.plain.goOn(t, afterReplacing) // the others need all replicas
			old.Resume()
			g.InSync(t) // Sentinels wait for 8 s before they make it a replica
		}
	}},
}
