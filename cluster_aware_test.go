package lockproxy_test

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Clients that know Redis Cluster are told that the proxy is all of it, and work.
func TestClusterAwareClients(t *testing.T) {
	p := startProxy(t, sixNodes(t).URL(), nil)
	host, port, _ := net.SplitHostPort(p.addr)

	aware := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{p.addr}, ReadOnly: true})
	defer aware.Close()
	for i := range 50 {
		key := fmt.Sprintf("aware:%d", i)
		if err := aware.Set(ctx, key, i, 0).Err(); err != nil {
			t.Fatal(err)
		}
		if got, err := aware.Get(ctx, key).Int(); err != nil || got != i {
			t.Fatalf("%s: %d, %v", key, got, err)
		}
	}
	seen := map[string]bool{}
	aware.ForEachMaster(ctx, func(_ context.Context, master *redis.Client) error {
		seen[master.Options().Addr] = true
		return nil
	})
	if len(seen) != 1 || !seen[p.addr] {
		t.Errorf("go-redis is led to %v, not to the proxy at %s", seen, p.addr)
	}
	token, err := aware.Do(ctx, "LOCK", "aware:lock", "10").Int64()
	if err != nil || token <= 0 {
		t.Errorf("LOCK: %d, %v", token, err)
	}

	out, err := exec.Command("redis-cli", "-c", "-h", host, "-p", port, "SET", "aware:cli", "x").CombinedOutput()
	if err != nil || string(out) != "OK\n" {
		t.Errorf("redis-cli -c: %q, %v", out, err)
	}
	scan, err := exec.Command("redis-cli", "-h", host, "-p", port, "--scan", "--pattern", "aware:*").CombinedOutput()
	if n := len(strings.Fields(string(scan))); err != nil || n < 52 {
		t.Errorf("redis-cli --scan: %d keys, %v", n, err)
	}

	c := dial(t, p.addr)
	c.expect("CLUSTER SLOTS", fmt.Sprintf("*1\r\n*3\r\n:0\r\n:16383\r\n*4\r\n$%d\r\n%s\r\n:%s\r\n$40\r\n…", len(host), host, port))
	for _, ask := range []string{"CLUSTER SLOTS", "CLUSTER SHARDS", "CLUSTER NODES"} {
		got := c.do(ask)
		if !strings.Contains(got, port) {
			t.Errorf("%s doesn't lead to the proxy: %q", ask, got)
		}
		for _, node := range sixNodes(t).Nodes {
			if _, port, _ := net.SplitHostPort(node.Addr()); strings.Contains(got, port) {
				t.Errorf("%s leads past the proxy: %q", ask, got)
			}
		}
	}
	c.expect("CLUSTER KEYSLOT {x}a", ":16287\r\n")
	c.expect("CLUSTER COUNTKEYSINSLOT 1", ":0\r\n")
	c.expect("CLUSTER FAILOVER", "-ERR CLUSTER FAILOVER can't be sent to a cluster as a whole: it is about one node. Send it to that node directly\r\n")
	c.expect("READONLY", "+OK\r\n")
	c.expect("ASKING", "+OK\r\n")
	if got := c.do("CLUSTER INFO"); !strings.Contains(got, "cluster_state:ok") || !strings.Contains(got, "lockproxy_upstream_masters:3") {
		t.Errorf("CLUSTER INFO: %q", got)
	}
	if got := c.do("INFO lockproxy"); !strings.Contains(got, "upstream_cluster_masters:3\r\nupstream_cluster_whole:1") {
		t.Errorf("INFO lockproxy: %q", got)
	}
}
