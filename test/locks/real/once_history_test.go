package real_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/lockcmd"
	"lockproxy/proxy"
)

// Values are made once while clients leave, values are deleted, connections to Redis are killed and
// scripts are flushed.
func TestOnceChaos(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	h := &proxytest.OnceHistory{T: t, Keys: []string{"{a}1", "{a}2", "b"}}
	for range 2 {
		h.Addrs = append(h.Addrs, proxytest.Start(t, server.URL(), nil).Addr)
	}
	direct := proxytest.Dial(t, server.Addr())
	h.Run(12, 4, 8, func(random *rand.Rand) {
		if random.IntN(2) == 0 {
			direct.Do("CLIENT KILL TYPE normal SKIPME yes")
		} else {
			direct.Do("SCRIPT FLUSH")
		}
	})
}

// Likewise while replicas take over, with --min-replicas. A failover can lose a DONE, or
// another release: then the claim is back until its timeout, and the value is made again.
func TestOnceAcrossFailovers(t *testing.T) {
	t.Parallel()
	g := testredis.StartGroup(t, testredis.GroupOptions{})
	h := &proxytest.OnceHistory{T: t, Keys: []string{"{a}1", "{a}2", "b"}, Rewinds: true}
	var proxies []*proxytest.Proxy
	for range 2 {
		p := proxytest.Start(t, g.URL(), func(cfg *proxy.Config) {
			// all of them: Sentinels can make any the master
			cfg.Locks.Durability = lockcmd.Durability{MinReplicas: 2,
				ReplicaTimeout: time.Minute}
		})
		proxies, h.Addrs = append(proxies, p), append(h.Addrs, p.Addr)
	}
	h.Releaser = proxytest.Dial(t, h.Addrs[0])
	h.Run(6, 25, 1, func(*rand.Rand) {
		old := g.Master()
		g.Failover(t)
		master := g.WaitReplaced(t, old)
		for _, p := range proxies {
			served(t, p, master)
		}
		g.InSync(t)
	})
	t.Logf("%d claims were back after their release", h.Returned)
}

// Redis may evict values and claims alike: what is given out was stored by the last who was told to
// make it, and everybody is answered.
func TestOnceWhileKeysAreEvicted(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	h := &proxytest.OnceHistory{T: t, Keys: []string{"{a}1", "{a}2", "b"}, Loses: true}
	for range 2 {
		h.Addrs = append(h.Addrs, proxytest.Start(t, server.URL(), nil).Addr)
	}
	direct := proxytest.Dial(t, server.Addr())
	direct.Do("CONFIG SET maxmemory-policy allkeys-random")
	h.Run(12, 4, 8, func(*rand.Rand) {
		direct.Do("CONFIG SET maxmemory 1")
		direct.Do("SET other x") // refused, when everything has been evicted
		direct.Do("CONFIG SET maxmemory 0")
	})
	if strings.Contains(server.Ask("INFO", "stats"), "evicted_keys:0") {
		t.Error("nothing was evicted")
	}
}
