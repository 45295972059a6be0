package cluster_test

import (
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testtls"
	"lockproxy/internal/test/testwait"
)

// The nodes of a cluster are told by their addresses, and announce the names that are in their
// certificates. Each is accepted for its own name, and for no other node's.
func TestCertificatesOfAnnouncedNames(t *testing.T) {
	t.Parallel()
	ca := testtls.NewAuthority(t)
	seed := ca.IssueName(t, "localhost")
	c, addrs := testredis.StartTLSCluster(t, 3, "--tls-cert-file", seed.CertFile, "--tls-key-file",
		seed.KeyFile, "--tls-ca-cert-file", ca.File, "--tls-auth-clients", "no")
	set := func(i int, words ...string) {
		t.Helper()
		if got := c.Nodes[i].Ask(append([]string{"CONFIG", "SET"}, words...)...); got != "+OK" {
			t.Fatal(got)
		}
	}
	announce := func(i int, name string) {
		t.Helper()
		set(i, "cluster-announce-hostname", name)
		testwait.Until(t, "all nodes know its name", func() bool {
			for _, node := range c.Nodes {
				if !strings.Contains(node.Ask("CLUSTER", "SLOTS"), name) {
					return false
				}
			}
			return true
		})
	}
	for i := range c.Nodes[1:] {
		name := fmt.Sprintf("node-%d.test", i+1)
		pair := ca.IssueName(t, name)
		set(i+1, "tls-cert-file", pair.CertFile, "tls-key-file", pair.KeyFile)
		announce(i+1, name)
	}
	announce(0, "localhost")
	_, port, _ := net.SplitHostPort(addrs[0])
	p := proxytest.Start(t, "rediss+cluster://localhost:"+port,
		proxytest.UpstreamTLS(func(cfg *tls.Config) { cfg.RootCAs = ca.Pool }))
	client := proxytest.Dial(t, p.Addr)
	for i := range 3 {
		client.Expect("SET "+keyOf(c, i, "k")+" v", "+OK\r\n")
		client.Lock(keyOf(c, i, "lock") + " 600")
	}

	// Another name is announced than the certificate has, though it is that of another node.
	announce(2, "node-1b.test")
	other := ca.IssueName(t, "node-1.test")
	set(2, "tls-cert-file", other.CertFile, "tls-key-file", other.KeyFile)
	stranger := proxytest.Start(t, "rediss+cluster://localhost:"+port,
		proxytest.UpstreamTLS(func(cfg *tls.Config) { cfg.RootCAs = ca.Pool }))
	refused := proxytest.Dial(t, stranger.Addr)
	refused.Expect("SET "+keyOf(c, 1, "k")+" v", "+OK\r\n")
	got := refused.Do("SET " + keyOf(c, 2, "k") + " v")
	if !strings.HasPrefix(got, "-UPSTREAM") || !strings.Contains(got, "node-1b.test") {
		t.Errorf("a node with another node's certificate: %q", got)
	}
}
