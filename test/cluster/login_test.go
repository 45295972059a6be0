package cluster_test

import (
	"crypto/tls"
	"fmt"
	"slices"
	"strings"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testtls"
	"lockproxy/internal/test/testwait"
)

// Every node is logged in to as the client is, also those that it comes to later.
func TestClusterLogin(t *testing.T) {
	c := testredis.StartCluster(t, 2, 0, "--requirepass", "secret")
	for _, s := range c.Nodes {
		s.Ask("ACL", "SETUSER", "ann", "on", ">pw", "~a*", "+@all")
	}
	one, two := keyOf(c, 0, "a"), keyOf(c, 1, "a")

	p := proxytest.Start(t, c.URL(), nil)
	k := proxytest.Dial(t, p.Addr)
	k.Expect("GET "+one, "-NOAUTH Authentication required.\r\n")
	k.Expect("DBSIZE", "-NOAUTH Authentication required.\r\n")
	k.Expect("READONLY", "-NOAUTH Authentication required.\r\n")
	k.Expect("CLUSTER SLOTS", "-NOAUTH Authentication required.\r\n")
	k.Expect("LOCK "+one+" 1000", "-NOAUTH …")
	k.Expect("AUTH wrong", "-WRONGPASS …")
	k.Expect("AUTH secret", "+OK\r\n")
	for _, key := range []string{one, two} {
		k.Expect("SET "+key+" 1", "+OK\r\n")
	}
	k.Expect("DBSIZE", ":2\r\n")
	k.Expect("AUTH ann pw", "+OK\r\n")
	for _, key := range []string{one, two} {
		k.Expect("GET "+key, "$1\r\n1\r\n")
		k.Expect("GET b"+key, "-NOPERM …")
	}
	k.Expect("HELLO 3 AUTH default secret SETNAME tom", "%7…")
	k.Expect("MGET "+one+" "+two+" nothing", "*3\r\n$1\r\n1\r\n$1\r\n1\r\n_\r\n")
	k.Send("SUBSCRIBE x")
	k.Reply()
	k.Expect("SET "+two+" 3", "+OK\r\n")
	for _, s := range c.Nodes {
		if list := s.Ask("CLIENT", "LIST"); !strings.Contains(list, "name=tom") {
			t.Errorf("a node doesn't know the client's name:\n%s", list)
		}
	}

	asUser := proxytest.Start(t, strings.Replace(c.URL(), "://", "://ann:pw@", 1), nil)
	u := proxytest.Dial(t, asUser.Addr)
	u.Expect("MGET "+one+" "+two, "*2\r\n$1\r\n1\r\n$1\r\n3\r\n")
	u.Expect("GET b"+one, "-NOPERM …")
}

// keyOf returns a key that starts with prefix and is served by the i-th node.
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
	c, addrs := testredis.StartTLSCluster(t, 3, "--tls-cert-file", pair.CertFile, "--tls-key-file",
		pair.KeyFile,
		"--tls-ca-cert-file", ca.File, "--tls-auth-clients", "optional")
	// Its certificate is for its address, and stays good.
	c.Nodes[0].Ask("CONFIG", "SET", "cluster-announce-hostname", "elsewhere.test")
	testwait.Until(t, "all nodes know its name", func() bool {
		return !slices.ContainsFunc(c.Nodes, func(node *testredis.Server) bool {
			return !strings.Contains(node.Ask("CLUSTER", "SLOTS"), "elsewhere.test")
		})
	})
	p := proxytest.Start(t, "rediss+cluster://"+strings.Join(addrs, ","),
		proxytest.UpstreamTLS(func(cfg *tls.Config) { cfg.RootCAs = ca.Pool }))
	k := proxytest.Dial(t, p.Addr)
	for i := range 3 {
		k.Expect("SET "+keyOf(c, i, "tls")+" 1", "+OK\r\n")
	}
	k.Expect("DBSIZE", ":3\r\n")
	k.Expect(proxytest.Unlock("job", k.Lock("job 600")), ":1\r\n")
	k.Send("MULTI", "SET job2 1", "EXEC")
	k.WantReply("+OK\r\n")
	k.WantReply("+QUEUED\r\n")
	k.WantReply("*1\r\n+OK\r\n")
}
