package cluster_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/lockcmd/keyname"
)

// A user with the documented rights keeps a lock whose slot moves, to a master or to a node that
// serves no slot yet.
func TestRightsWhileASlotMoves(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, line, ok := strings.Cut(string(page), "redis-cli -p 6379 ACL SETUSER ")
	line, _, _ = strings.Cut(line, "\n")
	_, moving, documented := strings.Cut(string(page), "| in a cluster `+asking")
	moving, _, _ = strings.Cut(moving, "`")
	if !ok || !documented {
		t.Fatal("docs/operations.md does not say which rights a user needs")
	}
	line += " +asking" + strings.ReplaceAll(moving, `\|`, "|") + " +get +spublish +ssubscribe"
	for _, where := range []string{"a master", "a new node"} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			cluster := testredis.StartCluster(t, 2, 0)
			slot := cluster.Slot("{m}")
			from := cluster.MasterOf(slot)
			to := proxytest.AnotherMaster(cluster, from)
			if where == "a new node" {
				to = cluster.AddNode()
			}
			acl := append([]string{"ACL", "SETUSER"},
				strings.Fields(strings.ReplaceAll(line, "'", ""))...)
			for _, node := range cluster.Nodes {
				if got := node.Ask(acl...); got != "+OK" {
					t.Fatalf("%q: %s", acl, got)
				}
			}
			c := proxytest.Dial(t, proxytest.Start(t, cluster.URL(), nil).Addr)
			c.Expect("AUTH app password", "+OK\r\n")
			c.Expect("SET app:{m}data x", "+OK\r\n")
			token := c.Lock("app:{m}job 600")
			m := cluster.BeginMigration(from, to, slot)
			for _, key := range []string{"app:{m}data", "app:{m}job",
				keyname.Record([]byte("app:{m}job"))} {
				m.MoveKey(key)
			}
			c.Expect("GET app:{m}data", "$1\r\nx\r\n")
			c.Expect("EVAL return{1} 1 app:{m}data", "*1\r\n:1\r\n")
			got := c.Do("LOCKINFO app:{m}job")
			if !strings.Contains(got, fmt.Sprintf(":%d\r\n", token)) {
				t.Errorf("LOCKINFO does not tell token %d: %q", token, got)
			}
			c.Expect(proxytest.Unlock("app:{m}job", token), ":1\r\n")
			m.MoveKeys()
			m.Finish()
			c.Lock("app:{m}job 600")
		})
	}
}
