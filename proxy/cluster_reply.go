package proxy

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"net"
	"strconv"
	"strings"

	"lockproxy/internal/cluster"
	"lockproxy/internal/resp"
)

// A client that knows Redis Cluster asks which node serves which slot, and goes there. In front of
// a cluster it is told that one node serves all slots: this proxy, at the address that the client
// has connected to.

// answerCluster answers CLUSTER SLOTS and its like with the proxy as the only node, once the
// upstream has shown that this client may ask.
func answerCluster(x *exchange, req resp.Request) (done bool) {
	if len(req.Args) < 2 || !x.server.cfg.Locks.Cluster {
		return false
	}
	answer := clusterAnswers[strings.ToLower(string(req.Args[1]))]
	if answer == nil {
		return false
	}
	return x.answerAfter(func(raw []byte, proto int) []byte {
		if raw[0] == '-' || raw[0] == '!' {
			return raw
		}
		return resp.AppendValue(nil, answer(clusterNode(x)), proto)
	}, req.Args)
}

// node is the proxy as the only node of a cluster.
type node struct {
	host  string
	port  int
	id    string // 40 hexadecimal digits
	whole bool   // every slot of the cluster behind it is served
	nodes int    // masters behind it
}

// clusterNode is the proxy as this client sees it.
func clusterNode(x *exchange) node {
	addr := x.server.cfg.ClusterAnnounce
	if addr == "" {
		addr = x.client.LocalAddr().String()
	}
	host, port, _ := net.SplitHostPort(addr)
	n := node{host: host}
	n.port, _ = strconv.Atoi(port)
	sum := sha1.Sum([]byte("lockproxy " + addr))
	n.id = hex.EncodeToString(sum[:])
	n.nodes, n.whole = x.server.cfg.Upstream.ClusterMasters()
	return n
}

// clusterAnswers are the subcommands of CLUSTER that are answered so, and how.
var clusterAnswers = map[string]func(n node) resp.Value{
	"slots": func(n node) resp.Value {
		return resp.Array(resp.Array(resp.Int(0), resp.Int(cluster.Slots-1),
			resp.Array(resp.Bulk(n.host), resp.Int(n.port), resp.Bulk(n.id), resp.Array())))
	},
	"shards": func(n node) resp.Value {
		return resp.Array(resp.Map(
			"slots", resp.Array(resp.Int(0), resp.Int(cluster.Slots-1)),
			"nodes", resp.Array(resp.Map(
				"id", resp.Bulk(n.id), "port", resp.Int(n.port), "ip", resp.Bulk(n.host),
				"endpoint", resp.Bulk(n.host), "role", resp.Bulk("master"),
				"replication-offset", resp.Int(0), "health", resp.Bulk("online")))))
	},
	"nodes": func(n node) resp.Value {
		return resp.Bulk(fmt.Sprintf("%s %s:%d@%d myself,master - 0 0 1 connected 0-%d\n",
			n.id, n.host, n.port, n.port, cluster.Slots-1)) // an IPv6 address without brackets
	},
	"info": func(n node) resp.Value {
		state := "ok"
		if !n.whole {
			state = "fail"
		}
		return resp.Bulk(fmt.Sprintf("cluster_enabled:1\r\ncluster_state:%s\r\n"+
			"cluster_slots_assigned:%d\r\ncluster_slots_ok:%d\r\ncluster_slots_pfail:0\r\n"+
			"cluster_slots_fail:0\r\ncluster_known_nodes:1\r\ncluster_size:1\r\n"+
			"cluster_current_epoch:1\r\ncluster_my_epoch:1\r\nlockproxy_upstream_masters:%d\r\n",
			state, cluster.Slots, cluster.Slots, n.nodes))
	},
	"myid":      func(n node) resp.Value { return resp.Bulk(n.id) },
	"myshardid": func(n node) resp.Value { return resp.Bulk(n.id) },
	"links":     func(node) resp.Value { return resp.Array() },
	"replicas":  func(node) resp.Value { return resp.Array() },
	"slaves":    func(node) resp.Value { return resp.Array() },
}
