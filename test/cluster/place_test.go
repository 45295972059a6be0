package cluster_test

import (
	"strings"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
)

// Clients have places in the lines of locks of all masters, and through several proxies.
func TestPlaces(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, 3, 0)
	p, other := proxytest.Start(t, cluster.URL(), nil), proxytest.Start(t, cluster.URL(), nil)
	a, b, c := proxytest.Dial(t, p.Addr), proxytest.Dial(t, other.Addr), proxytest.Dial(t, other.Addr)
	for _, key := range []string{"a", "b", "c", "d"} {
		token := a.Lock(key + " 600")
		ask := "LOCK " + key + " 600 PLACE 60 OWNER me"
		b.Expect(ask, "$-1\r\n")
		a.Expect(proxytest.Unlock(key, token), ":1\r\n")
		got := ""
		testwait.Until(t, "its turn comes", func() bool {
			got = c.Do(ask)
			return got != "$-1\r\n" && !strings.HasPrefix(got, "-UPSTREAM has not answered for ")
		})
		a.Expect("LOCK "+key+" 600", "$-1\r\n")
		c.Expect("UNLOCK "+key, ":1\r\n")
		if mine := proxytest.Token(t, got); mine <= token {
			t.Errorf("token %d after %d", mine, token)
		}
	}
}
