package testredis_test

import (
	"net"
	"strconv"
	"strings"
	"testing"

	"lockproxy/internal/test/testredis"
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

// A slot that moves back and forth stays where it was moved last: each time its new master has the
// greatest epoch, by both masters' word.
func TestMigrationsInARow(t *testing.T) {
	c := testredis.StartCluster(t, 2, 0)
	slot := c.Slot("a")
	for i := range 8 {
		from := c.MasterOf(slot)
		to := c.Nodes[0]
		if from == to {
			to = c.Nodes[1]
		}
		c.Migrate(slot, to)
		for _, s := range c.Nodes {
			if mine, other := epoch(t, s, c.ID(to)), epoch(t, s, c.ID(from)); mine <= other {
				t.Fatalf("after migration %d the node at %s knows epoch %d for the slot's new "+
					"master, %d for the old", i+1, s.Addr(), mine, other)
			}
		}
	}
}

// epoch is a node's epoch by the word of another.
func epoch(t *testing.T, asked *testredis.Server, id string) int {
	t.Helper()
	for line := range strings.SplitSeq(asked.Ask("CLUSTER", "NODES"), "\n") {
		if fields := strings.Fields(line); len(fields) >= 8 && fields[0] == id {
			n, err := strconv.Atoi(fields[6])
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("the node at %s doesn't know %s", asked.Addr(), id)
	return 0
}

// Nodes agree though one of them has not done with an introduction, which takes a busy machine long.
func TestAgreeDuringAnIntroduction(t *testing.T) {
	c := testredis.StartCluster(t, 3, 0)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	_, port, _ := net.SplitHostPort(silent.Addr().String())
	if got := c.Nodes[0].Ask("CLUSTER", "MEET", "127.0.0.1", port, port); got != "+OK" {
		t.Fatal(got)
	}
	c.WaitOK()
	if got := c.Nodes[0].Ask("CLUSTER", "NODES"); !strings.Contains(got, "handshake") {
		t.Errorf("the introduction has ended: %s", got)
	}
}
