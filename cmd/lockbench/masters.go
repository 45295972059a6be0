package main

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"lockproxy/internal/freeport"
)

// masters are a Redis Cluster without replicas, each with an equal part of the slots. The zero
// masters are none.
type masters struct {
	nodes    []*server
	monitors []monitor // of each node
}

const (
	masterCount  = 3
	clusterSlots = 16384
	busOffset    = 10000 // from a node's port to that on which the others talk to it
)

// clusterSettles is how long the nodes can take to agree on who serves what.
const clusterSettles = 30 * time.Second

// startCluster starts the masters and returns when each of them takes the cluster for whole.
func (b *bench) startCluster() error {
	for i := range masterCount {
		if err := b.startMaster(); err != nil {
			return err
		}
		first, last := i*clusterSlots/masterCount, (i+1)*clusterSlots/masterCount-1
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
	for i := 1; i < masterCount; i++ {
		if err := b.masters.tell(i, "MEET", host, port); err != nil {
			return err
		}
	}
	return b.waitForCluster()
}

func (b *bench) startMaster() error {
	addr, err := freeport.Addr(busOffset)
	if err != nil {
		return err
	}
	_, port, _ := net.SplitHostPort(addr)
	node, err := b.servers.start(b.ctx, addr, "redis-server",
		append(b.redisArgs(port), "--cluster-enabled", "yes", "--cluster-config-file",
			"nodes-"+port+".conf")...)
	if err != nil {
		return err
	}
	m, err := b.watch(addr)
	if err != nil {
		return err
	}
	b.masters.nodes, b.masters.monitors = append(b.masters.nodes, node),
		append(b.masters.monitors, m)
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

// whole reports whether each node knows all others and a master for every slot.
func (m *masters) whole() (bool, error) {
	for _, node := range m.monitors {
		info, err := node.do("CLUSTER", "INFO")
		if err != nil {
			return false, fmt.Errorf("cannot ask a node for the state of the cluster: %w", err)
		}
		for name, value := range fields(info.text) {
			if name == "cluster_state" && value != "ok" || name == "cluster_known_nodes" &&
				value != strconv.Itoa(masterCount) {
				return false, nil
			}
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
