package main

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"lockproxy/internal/test/freeport"
)

// masters are a Redis Cluster, each with an equal part of the slots. The zero masters are none.
type masters struct {
	nodes    []*server // replicas, if there are any, come last
	monitors []monitor // of each node
	replicas int
}

const (
	masterCount  = 3 // where nothing else is measured
	clusterSlots = 16384
	busOffset    = 10000 // from a node's port to that on which the others talk to it
)

// clusterSettles is how long the nodes can take to agree on who serves what.
const clusterSettles = 30 * time.Second

// startCluster starts masters, and replicas of the first of them, and returns when each node takes
// the cluster for whole.
func (b *bench) startCluster(masters, replicas int) error {
	for range masters + replicas {
		if err := b.startNode(&b.masters, "--cluster-enabled", "yes",
			"--repl-diskless-sync-delay", "0"); err != nil {
			return err
		}
	}
	for i := range masters {
		first, last := i*clusterSlots/masters, (i+1)*clusterSlots/masters-1
		// or they would have to quarrel about it
		if err := b.masters.tell(i, "SET-CONFIG-EPOCH", strconv.Itoa(i+1)); err != nil {
			return err
		}
		if err := b.masters.tell(i, "ADDSLOTSRANGE", strconv.Itoa(first),
			strconv.Itoa(last)); err != nil {
			return err
		}
	}
	host, port, _ := net.SplitHostPort(b.masters.nodes[0].addr)
	for i := 1; i < masters+replicas; i++ {
		if err := b.masters.tell(i, "MEET", host, port); err != nil {
			return err
		}
	}
	if err := b.waitForCluster(); err != nil || replicas == 0 {
		return err
	}
	for i := range replicas {
		id, err := b.masters.monitors[i].do("CLUSTER", "MYID")
		if err != nil {
			return err
		}
		if err := b.masters.tell(masters+i, "REPLICATE", id.text); err != nil {
			return err
		}
	}
	b.masters.replicas = replicas
	return b.waitForCluster()
}

// startShards starts as many Redises that know nothing of each other.
func (b *bench) startShards(n int) error {
	for range n {
		if err := b.startNode(&b.shards); err != nil {
			return err
		}
	}
	return nil
}

// startNode starts one more of m.
func (b *bench) startNode(m *masters, args ...string) error {
	addr, err := freeport.Addr(busOffset)
	if err != nil {
		return err
	}
	_, port, _ := net.SplitHostPort(addr)
	node, err := b.servers.start(b.ctx, addr, "redis-server",
		append(append(b.redisArgs(port), "--cluster-config-file", "nodes-"+port+".conf"),
			args...)...)
	if err != nil {
		return err
	}
	watch, err := b.watch(addr)
	if err != nil {
		return err
	}
	m.nodes, m.monitors = append(m.nodes, node), append(m.monitors, watch)
	return nil
}

// tell gives a node a CLUSTER command.
func (m *masters) tell(i int, command ...string) error {
	if _, err := m.monitors[i].do(append([]string{"CLUSTER"}, command...)...); err != nil {
		return fmt.Errorf("cannot make a cluster, CLUSTER %s failed (it needs Redis 7): %w",
			command[0], err)
	}
	return nil
}

func (b *bench) waitForCluster() error {
	for deadline := time.Now().Add(clusterSettles); ; time.Sleep(20 * time.Millisecond) {
		whole, err := b.masters.whole()
		switch {
		case err != nil || whole:
			return err
		case b.ctx.Err() != nil:
			return b.ctx.Err()
		case time.Now().After(deadline):
			return fmt.Errorf("the nodes of the cluster do not agree after %v", clusterSettles)
		}
	}
}

// whole reports whether each node knows all others and a master for every slot, and each replica
// follows its master.
func (m *masters) whole() (bool, error) {
	for i, node := range m.monitors {
		info, err := node.do("CLUSTER", "INFO")
		if err != nil {
			return false, fmt.Errorf("cannot ask a node for the state of the cluster: %w", err)
		}
		for name, value := range fields(info.text) {
			if name == "cluster_state" && value != "ok" || name == "cluster_known_nodes" &&
				value != strconv.Itoa(len(m.nodes)) {
				return false, nil
			}
		}
		list, err := node.do("CLUSTER", "NODES")
		if err != nil || strings.Count(list.text, "slave ") != m.replicas {
			return false, err
		}
		info, err = node.do("INFO", "replication")
		if err != nil || i >= len(m.nodes)-m.replicas &&
			!strings.Contains(info.text, "master_link_status:up") {
			return false, err
		}
	}
	return true, nil
}

// url is how lockproxy finds the cluster.
func (m *masters) url() string {
	return "redis+cluster://" + strings.Join(over(m.nodes,
		func(s *server) string { return s.addr }), ",")
}

// usage is what all masters together have done so far.
func (m *masters) usage() (sum usage, err error) {
	for _, node := range m.monitors {
		u, err := node.usage()
		if err != nil {
			return usage{}, err
		}
		sum = sum.plus(u)
	}
	return sum, nil
}

// size is how many keys all masters together have.
func (m *masters) size() (sum int, err error) {
	for _, node := range m.monitors {
		size, err := node.do("DBSIZE")
		if err != nil {
			return 0, fmt.Errorf("cannot ask a node how many keys it has: %w", err)
		}
		sum += int(size.n)
	}
	return sum, nil
}

// close ends the monitors; the nodes are among the bench's servers.
func (m *masters) close() {
	for _, node := range m.monitors {
		node.close()
	}
}
