package lockproxy_test

import (
	"crypto/tls"
	"fmt"
	"strings"
	"testing"

	"lockproxy/internal/testredis"
	"lockproxy/internal/testtls"
)

// Every node is logged in to as the client is, also those that it comes to later.
func TestClusterLogin(t *testing.T) {
	c := testredis.StartCluster(t, 2, 0, "--requirepass", "secret")
	for _, s := range c.Nodes {
		s.Ask("ACL", "SETUSER", "ann", "on", ">pw", "~a*", "+@all")
	}
	one, two := keyOf(c, 0, "a"), keyOf(c, 1, "a")

	p := startProxy(t, c.URL(), nil)
	k := dial(t, p.addr)
	k.expect("GET "+one, "-NOAUTH Authentication required.\r\n")
	k.expect("DBSIZE", "-NOAUTH Authentication required.\r\n")
	k.expect("READONLY", "-NOAUTH Authentication required.\r\n")
	k.expect("CLUSTER SLOTS", "-NOAUTH Authentication required.\r\n")
	k.expect("LOCK "+one+" 1", "-NOAUTH …")
	k.expect("AUTH wrong", "-WRONGPASS …")
	k.expect("AUTH secret", "+OK\r\n")
	for _, key := range []string{one, two} {
		k.expect("SET "+key+" 1", "+OK\r\n")
	}
	k.expect("DBSIZE", ":2\r\n")
	k.expect("AUTH ann pw", "+OK\r\n")
	for _, key := range []string{one, two} {
		k.expect("GET "+key, "$1\r\n1\r\n")
		k.expect("GET b"+key, "-NOPERM …")
	}
	k.expect("HELLO 3 AUTH default secret SETNAME tom", "%7…")
	k.expect("MGET "+one+" "+two+" nothing", "*3\r\n$1\r\n1\r\n$1\r\n1\r\n_\r\n")
	k.send("SUBSCRIBE x")
	k.reply()
	k.expect("SET "+two+" 3", "+OK\r\n")
	for _, s := range c.Nodes {
		if list := s.Ask("CLIENT", "LIST"); !strings.Contains(list, "name=tom") {
			t.Errorf("a node doesn't know the client's name:\n%s", list)
		}
	}

	asUser := startProxy(t, strings.Replace(c.URL(), "://", "://ann:pw@", 1), nil)
	u := dial(t, asUser.addr)
	u.expect("MGET "+one+" "+two, "*2\r\n$1\r\n1\r\n$1\r\n3\r\n")
	u.expect("GET b"+one, "-NOPERM …")
}

// keyOf is a key that starts with prefix and is served by the i-th node.
func keyOf(c *testredis.Cluster, i int, prefix string) string {
	for n := 0; ; n++ {
		if key := fmt.Sprint(prefix, n); c.MasterOf(c.Slot(key)) == c.Nodes[i] {
			return key
		}
	}
}

func TestClusterTLS(t *testing.T) {
	ca := testtls.NewAuthority(t)
	pair := ca.Issue(t, "redis.test")
	c, addrs := testredis.StartTLSCluster(t, 3, "--tls-cert-file", pair.CertFile, "--tls-key-file", pair.KeyFile,
		"--tls-ca-cert-file", ca.File, "--tls-auth-clients", "optional")
	p := startProxy(t, "rediss+cluster://"+strings.Join(addrs, ","), tpUpstreamTLS(func(cfg *tls.Config) { cfg.RootCAs = ca.Pool }))
	k := dial(t, p.addr)
	for i := range 3 {
		k.expect("SET "+keyOf(c, i, "tls")+" 1", "+OK\r\n")
	}
	k.expect("DBSIZE", ":3\r\n")
	k.expect(unlock("job", k.lock("job 30")), ":1\r\n")
	k.send("MULTI", "SET job2 1", "EXEC")
	k.wantReply("+OK\r\n")
	k.wantReply("+QUEUED\r\n")
	k.wantReply("*1\r\n+OK\r\n")
}
