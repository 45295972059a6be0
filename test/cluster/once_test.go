package cluster_test

import (
	"math/rand/v2"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
)

// Values are made once while their slots move to another node and back.
func TestOnceWhileSlotsMove(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, 2, 0)
	h := &proxytest.OnceHistory{T: t, Keys: []string{"{a}1", "{a}2", "b"}}
	for range 2 {
		h.Addrs = append(h.Addrs, proxytest.Start(t, cluster.URL(), nil).Addr)
	}
	h.Run(12, 20, 6, func(random *rand.Rand) {
		slot := cluster.Slot([]string{"{a}", "b"}[random.IntN(2)])
		cluster.Migrate(slot, proxytest.AnotherMaster(cluster, cluster.MasterOf(slot)))
	})
}
