package cluster_test

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
)

// Clients that know Redis Cluster are told that the proxy is the only node, and work.
func TestClusterAwareClients(t *testing.T) {
	p := proxytest.StartBy(t, testredis.TCP, proxytest.SixNodes(t).URL(), nil)
	host, port, _ := net.SplitHostPort(p.Addr)

	aware := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{p.Addr}, ReadOnly: true})
	defer aware.Close()
	for i := range 50 {
		key := fmt.Sprintf("aware:%d", i)
		if err := aware.Set(proxytest.Ctx, key, i, 0).Err(); err != nil {
			t.Fatal(err)
		}
		if got, err := aware.Get(proxytest.Ctx, key).Int(); err != nil || got != i {
			t.Fatalf("%s: %d, %v", key, got, err)
		}
	}
	seen := map[string]bool{}
	aware.ForEachMaster(proxytest.Ctx, func(_ context.Context, master *redis.Client) error {
		seen[master.Options().Addr] = true
		return nil
	})
	if len(seen) != 1 || !seen[p.Addr] {
		t.Errorf("go-redis is led to %v, not to the proxy at %s", seen, p.Addr)
	}
	token, err := aware.Do(proxytest.Ctx, "LOCK", "aware:lock", "1000").Int64()
	if err != nil || token <= 0 {
		t.Errorf("LOCK: %d, %v", token, err)
	}

	out, err := exec.Command("redis-cli", "-c", "-h", host, "-p", port, "SET", "aware:cli",
		"x").CombinedOutput()
	if err != nil || string(out) != "OK\n" {
		t.Errorf("redis-cli -c: %q, %v", out, err)
	}
	scan, err := exec.Command("redis-cli", "-h", host, "-p", port, "--scan", "--pattern",
		"aware:*").CombinedOutput()
	if n := len(strings.Fields(string(scan))); err != nil || n < 52 {
		t.Errorf("redis-cli --scan: %d keys, %v", n, err)
	}

	c := proxytest.Dial(t, p.Addr)
	c.Expect("CLUSTER SLOTS", fmt.Sprintf(
		"*1\r\n*3\r\n:0\r\n:16383\r\n*4\r\n$%d\r\n%s\r\n:%s\r\n$40\r\n…", len(host), host, port))
	for _, ask := range []string{"CLUSTER SLOTS", "CLUSTER SHARDS", "CLUSTER NODES"} {
		got := c.Do(ask)
		if !strings.Contains(got, port) {
			t.Errorf("%s doesn't lead to the proxy: %q", ask, got)
		}
		for _, node := range proxytest.SixNodes(t).Nodes {
			if _, port, _ := net.SplitHostPort(node.Addr()); strings.Contains(got, port) {
				t.Errorf("%s leads past the proxy: %q", ask, got)
			}
		}
	}
	c.Expect("CLUSTER KEYSLOT {x}a", ":16287\r\n")
	c.Expect("CLUSTER COUNTKEYSINSLOT 1", ":0\r\n")
	c.Expect("CLUSTER FAILOVER", "-ERR CLUSTER FAILOVER can't be sent to a cluster as a whole: "+
		"it is about one node. Send it to that node directly\r\n")
	c.Expect("READONLY", "+OK\r\n")
	c.Expect("ASKING", "+OK\r\n")
	if got := c.Do("CLUSTER INFO"); !strings.Contains(got, "cluster_state:ok") ||
		!strings.Contains(got, "lockproxy_upstream_masters:3") {
		t.Errorf("CLUSTER INFO: %q", got)
	}
	if got := c.Do("INFO lockproxy"); !strings.Contains(got,
		"upstream_cluster_masters:3\r\nupstream_cluster_whole:1") {
		t.Errorf("INFO lockproxy: %q", got)
	}
}
