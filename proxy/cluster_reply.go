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
	if len(req.Args) < 2 || !x.server.cfg.Upstream.IsCluster() {
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
		e := &resp.Encoder{Proto: proto}
		answer(e, clusterNode(x), req.Args[2:])
		return e.Buf
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
var clusterAnswers = map[string]func(e *resp.Encoder, n node, args [][]byte){
	"slots": func(e *resp.Encoder, n node, _ [][]byte) {
		e.Array(1)
		e.Array(3)
		e.Int(0)
		e.Int(cluster.Slots - 1)
		e.Array(4)
		e.Bulk(n.host)
		e.Int(n.port)
		e.Bulk(n.id)
		e.Array(0)
	},
	"shards": func(e *resp.Encoder, n node, _ [][]byte) {
		e.Array(1)
		e.Map(2)
		e.Bulk("slots")
		e.Array(2)
		e.Int(0)
		e.Int(cluster.Slots - 1)
		e.Bulk("nodes")
		e.Array(1)
		e.Map(7)
		e.Bulk("id")
		e.Bulk(n.id)
		e.Bulk("port")
		e.Int(n.port)
		e.Bulk("ip")
		e.Bulk(n.host)
		e.Bulk("endpoint")
		e.Bulk(n.host)
		e.Bulk("role")
		e.Bulk("master")
		e.Bulk("replication-offset")
		e.Int(0)
		e.Bulk("health")
		e.Bulk("online")
	},
	"nodes": func(e *resp.Encoder, n node, _ [][]byte) {
		e.Bulk(fmt.Sprintf("%s %s:%d@%d myself,master - 0 0 1 connected 0-%d\n",
			n.id, n.host, n.port, n.port, cluster.Slots-1)) // an IPv6 address without brackets
	},
	"info": func(e *resp.Encoder, n node, _ [][]byte) {
		state := "ok"
		if !n.whole {
			state = "fail"
		}
		e.Bulk(fmt.Sprintf("cluster_enabled:1\r\ncluster_state:%s\r\ncluster_slots_assigned:%d\r\n"+
			"cluster_slots_ok:%d\r\ncluster_slots_pfail:0\r\ncluster_slots_fail:0\r\n"+
			"cluster_known_nodes:1\r\ncluster_size:1\r\ncluster_current_epoch:1\r\n"+
			"cluster_my_epoch:1\r\nlockproxy_upstream_masters:%d\r\n",
			state, cluster.Slots, cluster.Slots, n.nodes))
	},
	"myid":      func(e *resp.Encoder, n node, _ [][]byte) { e.Bulk(n.id) },
	"myshardid": func(e *resp.Encoder, n node, _ [][]byte) { e.Bulk(n.id) },
	"links":     func(e *resp.Encoder, _ node, _ [][]byte) { e.Array(0) },
	"replicas":  func(e *resp.Encoder, _ node, _ [][]byte) { e.Array(0) },
	"slaves":    func(e *resp.Encoder, _ node, _ [][]byte) { e.Array(0) },
}
