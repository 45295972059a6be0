package cluster_test

import (
	"fmt"
	"regexp"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
)

// A client that waits for a lock of a master that answers is unblocked whichever other master is
// silent, by a client that has asked all masters before and by one that has just come.
func TestUnblockNextToASilentMaster(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, 3, 0, "--cluster-require-full-coverage", "no")
	p := proxytest.Start(t, cluster.URL(), nil)
	for i, silent := range cluster.Nodes {
		key := ""
		for n := 0; key == "" || cluster.MasterOf(cluster.Slot(key)) == silent; n++ {
			key = fmt.Sprintf("u%d-%d", i, n)
		}
		holder, looks := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
		waiter, admin := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
		token := holder.Lock(key + " 600")
		looks.Do("GET " + key)
		id := regexp.MustCompile(`\d+`).FindString(waiter.Do("CLIENT ID"))
		admin.Do("CLIENT LIST") // which all masters answer
		silent.Pause()
		for _, by := range []*proxytest.Conn{admin, proxytest.Dial(t, p.Addr)} {
			waiter.Send("LOCK " + key + " 600 WAIT 0")
			testwait.Until(t, "it waits", func() bool {
				return looks.Do("LOCKINFO "+key+" WAITERS") != "*0\r\n"
			})
			by.Expect("CLIENT UNBLOCK "+id, ":1\r\n")
			waiter.WantReply("$-1\r\n")
		}
		silent.Resume()
		holder.Expect(proxytest.Unlock(key, token), ":1\r\n")
	}
}
