package cluster_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/proxytest"
	"lockproxy/internal/testredis"
)

// Three owners at three proxies wait for each other's locks, which are on different nodes.
func TestADeadlockInACluster(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"sharded": nil,
		"old":     {"--rename-command", "SPUBLISH", "", "--rename-command", "SSUBSCRIBE", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := testredis.StartCluster(t, 3, 0, args...)
			conns := make([]*proxytest.Conn, 3)
			for i := range conns {
				conns[i] = proxytest.Dial(t, proxytest.Start(t, cluster.URL(), nil).Addr)
				conns[i].Lock(fmt.Sprintf("k%d 60 OWNER owner-%d", i, i))
			}
			for i := range conns {
				conns[i].Send(fmt.Sprintf("LOCK k%d 60 OWNER owner-%d WAIT 20", (i+1)%3, i))
				time.Sleep(100 * time.Millisecond)
			}
			began := time.Now()
			got, err := conns[2].TryReply()
			took := time.Since(began)
			if err != nil || !strings.HasPrefix(got, `-DEADLOCK "owner-2" waits for "k0", held by `+
				`"owner-0", who waits for "k1", held by "owner-1", who waits for "k2", held by `+
				`"owner-2":`) || took > 2*time.Second+proxytest.Late() {
				t.Errorf("%q after %v, %v", got, took, err)
			}
			conns[2].Expect("UNLOCK k2", ":1\r\n")
			proxytest.Token(t, conns[1].Reply())
		})
	}
}
