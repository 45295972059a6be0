package testredis

import (
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"

	"lockproxy/internal/test/wire"
)

// A Migration is slots on their way from one master to another: between BeginMigration and Finish
// their keys are in part here, in part there.
type Migration struct {
	c        *Cluster
	slots    []int
	from, to *Server
}

// Migrate moves a slot with all its keys, while clients can use them, and returns when all nodes
// know.
func (c *Cluster) Migrate(slot int, to *Server) {
	c.t.Helper()
	if from := c.MasterOf(slot); from != to {
		c.MigrateSlots(from, to, slot)
	}
}

// MigrateAll moves all slots of a master.
func (c *Cluster) MigrateAll(from, to *Server) {
	c.t.Helper()
	c.MigrateSlots(from, to, c.SlotsOf(from)...)
}

// MigrateSlots moves slots of a master with all their keys, while clients can use them, and returns
// when all nodes know.
func (c *Cluster) MigrateSlots(from, to *Server, slots ...int) {
	c.t.Helper()
	m := c.BeginMigration(from, to, slots...)
	m.MoveKeys()
	m.Finish()
}

// BeginMigration sets slots up to be moved, once all nodes agree. No key has moved then.
func (c *Cluster) BeginMigration(from, to *Server, slots ...int) *Migration {
	c.t.Helper()
	c.WaitOK()
	m := &Migration{c: c, slots: slots, from: from, to: to}
	m.each(to, "CLUSTER", "SETSLOT", "", "IMPORTING", c.ID(from))
	m.each(from, "CLUSTER", "SETSLOT", "", "MIGRATING", c.ID(to))
	return m
}

// each sends a command for each slot, which stands in its third place; all must be answered OK.
func (m *Migration) each(s *Server, command ...string) {
	m.c.t.Helper()
	commands := make([][]string, len(m.slots))
	for i, slot := range m.slots {
		commands[i] = slices.Clone(command)
		commands[i][2] = strconv.Itoa(slot)
	}
	for i, raw := range s.askAll(commands) {
		if string(raw) != "+OK\r\n" {
			m.c.t.Fatalf("%s at port %d: %q", strings.Join(commands[i], " "), s.port, raw)
		}
	}
}

// MoveKey moves one key.
func (m *Migration) MoveKey(key string) {
	m.c.t.Helper()
	host, _, _ := net.SplitHostPort(m.to.Addr())
	got := m.from.Ask(append([]string{"MIGRATE", host, m.to.busPort(), key, "0", "120000"}, m.auth()...)...)
	if got != "+OK" && got != "+NOKEY" {
		m.c.t.Fatalf("MIGRATE %q: %s", key, got)
	}
}

// MoveKeys moves all keys that the slots have. No further ones come up at their old master.
func (m *Migration) MoveKeys() {
	m.c.t.Helper()
	commands := make([][]string, len(m.slots))
	for i, slot := range m.slots {
		commands[i] = []string{"CLUSTER", "GETKEYSINSLOT", strconv.Itoa(slot), "1000000"}
	}
	for _, raw := range m.from.askAll(commands) {
		v, err := wire.Parse(raw)
		if err != nil {
			m.c.t.Fatalf("CLUSTER GETKEYSINSLOT: %v", err)
		}
		for _, key := range v.Elems {
			m.MoveKey(key.Text)
		}
	}
}

// Finish gives the slots to their new master and returns when all nodes know. All keys must have
// been moved.
func (m *Migration) Finish() {
	m.c.t.Helper()
	id := m.c.ID(m.to)
	// The new master first: so a slot is served at all times.
	m.each(m.to, "CLUSTER", "SETSLOT", "", "NODE", id)
	m.each(m.from, "CLUSTER", "SETSLOT", "", "NODE", id)
	// Nodes hear of it from one another, but of many slots at once not always all.
	looks := 0
	m.c.talkUntil("all nodes know of the slots' new master", func() bool {
		if m.c.agrees() {
			return true
		}
		if looks++; looks%100 == 0 {
			for _, s := range m.c.alive() {
				if s.Role() == "master" {
					m.each(s, "CLUSTER", "SETSLOT", "", "NODE", id)
				}
			}
		}
		return false
	})
}

func (m *Migration) auth() []string {
	for i, arg := range m.from.args {
		if arg == "--requirepass" {
			return []string{"AUTH", m.from.args[i+1]}
		}
	}
	return nil
}

// failoverLooks takes a bit longer than Redis, which gives up a failover by agreement after 5 s.
const failoverLooks = 400

// Failover has a replica take its master's place by agreement, and returns the new master when all
// nodes know.
func (c *Cluster) Failover(master *Server) *Server {
	c.t.Helper()
	replica := c.ReplicaOf(master)
	if replica == nil {
		c.t.Fatalf("the master on port %d has no replica", master.port)
	}
	c.setPatience(clusterImpatience) // with each other; also, an election that fails is soon retried
	c.waitFor("a failover can begin",
		func() bool { return replica.Ask("CLUSTER", "FAILOVER") == "+OK" })
	looks := 0
	c.waitFor("the replica is the master", func() bool {
		if looks++; looks%failoverLooks == 0 {
			replica.Ask("CLUSTER", "FAILOVER")
		}
		return replica.Role() == "master" && master.Role() == "slave"
	})
	c.WaitOK()
	c.setPatience(clusterPatience)
	if replica.Role() != "master" { // the machine has stopped it, and others took it for down
		return c.Failover(master)
	}
	return replica
}

// KillMaster kills a master and returns the replica that took its place, when all others know.
func (c *Cluster) KillMaster(master *Server) *Server {
	c.t.Helper()
	replica := c.ReplicaOf(master)
	if replica == nil {
		c.t.Fatalf("the master on port %d has no replica", master.port)
	}
	master.Kill()
	c.WaitReplaced(replica)
	return replica
}

// WaitReplaced returns when a replica has become a master, and the cluster is whole in its eyes. The
// replica is told to take its master's place, unless the test has said after how long nodes take a
// silent one for down: then they find out. A short time would have a busy machine replace others.
func (c *Cluster) WaitReplaced(replica *Server) {
	c.t.Helper()
	told := c.timeout != ""
	c.waitFor("a replica takes the master's place", func() bool {
		if !told {
			told = replica.Ask("CLUSTER", "FAILOVER", "TAKEOVER") == "+OK"
		}
		return replica.Role() == "master" && c.clusterInfo(replica, "cluster_state") == "ok"
	})
}

// Rejoin starts a node again that was killed, and returns when the cluster is whole and, if it has
// become a replica, in sync.
func (c *Cluster) Rejoin(t testing.TB, node *Server) {
	t.Helper()
	node.Restart()
	c.WaitOK()
	c.waitFor("the node that is back is in sync", func() bool {
		info := node.Ask("INFO", "replication")
		return strings.Contains(info, "role:master") ||
			strings.Contains(info, "master_link_status:up")
	})
}

// setPatience says after how long nodes take a silent one for down, unless the test has said.
func (c *Cluster) setPatience(milliseconds int) {
	c.t.Helper()
	if c.timeout != "" {
		return
	}
	for _, s := range c.alive() {
		if s.runs() {
			c.must(s, "CONFIG", "SET", nodeTimeout[2:], strconv.Itoa(milliseconds))
		}
	}
}
