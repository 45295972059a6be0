package testredis_test

import (
	"strconv"
	"testing"

	"lockproxy/internal/testredis"
)

// The cluster that other tests rely on does what its manual says.
func TestCluster(t *testing.T) {
	c := testredis.StartCluster(t, 3, 1)
	slot := c.Slot("a")
	from := c.MasterOf(slot)
	to := c.Nodes[0]
	if from == to {
		to = c.Nodes[1]
	}
	if got := from.Ask("SET", "a", "1"); got != "+OK" {
		t.Fatalf("SET at the slot's master: %s", got)
	}
	m := c.BeginMigration(from, to, slot)
	m.MoveKey("a")
	if got, want := from.Ask("GET", "a"), "-ASK "+strconv.Itoa(slot)+" "+to.Addr(); got != want {
		t.Fatalf("GET of a key that has moved: %s, not %s", got, want)
	}
	m.Finish()
	if got := to.Ask("GET", "a"); got != "1" {
		t.Fatalf("GET at the new master: %s", got)
	}
	if got := c.Failover(to); c.MasterOf(slot) != got {
		t.Fatal("the replica doesn't serve the slot after a failover")
	}
	master := c.MasterOf(slot)
	if got := c.KillMaster(master); c.MasterOf(slot) != got {
		t.Fatal("the replica doesn't serve the slot after its master's death")
	}
	c.Rejoin(t, master)
	node := c.AddNode()
	c.MigrateAll(c.MasterOf(slot), node)
	if c.MasterOf(slot) != node || node.Ask("GET", "a") != "1" {
		t.Fatal("the added node doesn't serve what it was given")
	}
	c.MigrateAll(node, c.Nodes[1])
	c.RemoveNode(node)
	c.WaitOK()
}
