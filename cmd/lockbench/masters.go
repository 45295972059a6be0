package main

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

// clusterSlots is how many slots the masters share.
const clusterSlots = 16384

// startCluster starts masters without replicas, each with an equal part of the slots. It returns
// the URL for lockproxy once each master knows the whole cluster.
func (b *bench) startCluster() (upstream string, err error) {
	var addrs []string
	for i := range b.masters {
		name := ""
		if i == 0 {
			name = viaDirect
		}
		node, monitor, err := b.startRedis(name, "--cluster-enabled", "yes")
		if err != nil {
			return "", err
		}
		b.monitors = append(b.monitors, monitor)
		addrs = append(addrs, node.addr)
	}
	host, port, _ := net.SplitHostPort(addrs[0])
	for i, m := range b.monitors {
		first, last := i*clusterSlots/b.masters, (i+1)*clusterSlots/b.masters-1
		for _, command := range [][]string{
			{"SET-CONFIG-EPOCH", strconv.Itoa(i + 1)}, // or they would compete for one
			{"ADDSLOTSRANGE", strconv.Itoa(first), strconv.Itoa(last)},
			{"MEET", host, port},
		} {
			if _, err := m.do(append([]string{"CLUSTER"}, command...)...); err != nil {
				return "", fmt.Errorf("cannot make a cluster (it needs Redis 7): %w", err)
			}
		}
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		whole, err := b.clusterIsWhole()
		switch {
		case err != nil:
			return "", err
		case whole:
			return "redis+cluster://" + strings.Join(addrs, ","), nil
		case b.ctx.Err() != nil:
			return "", b.ctx.Err()
		case time.Now().After(deadline):
			return "", fmt.Errorf("the nodes of the cluster do not agree after 30 s")
		}
	}
}

// clusterIsWhole reports whether each node knows all others and a master for every slot.
func (b *bench) clusterIsWhole() (bool, error) {
	for _, m := range b.monitors {
		info, err := m.do("CLUSTER", "INFO")
		if err != nil {
			return false, fmt.Errorf("cannot ask a node for the state of the cluster: %w", err)
		}
		if !strings.Contains(info.text, "cluster_state:ok") ||
			!strings.Contains(info.text, fmt.Sprintf("cluster_known_nodes:%d\r", b.masters)) {
			return false, nil
		}
	}
	return true, nil
}
