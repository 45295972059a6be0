//go:build faults

package faults_test

import (
	"math/rand/v2"
	"testing"

	processes "lockproxy/internal/test/faults/process"
	"lockproxy/internal/test/proxytest"
)

// Values are made once while a proxy is killed and started again. What its clients were making, the
// test frees: nobody else renews that, so that it would end with its timeout.
func TestPromisedOnceAcrossKilledProxies(t *testing.T) {
	t.Parallel()
	store, err := processes.StartRedis(proxytest.Ctx, t.TempDir(), processes.None, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Kill)
	var proxies [3]*processes.Proxy
	h := &proxytest.OnceHistory{T: t, Keys: []string{"{a}1", "{a}2", "b"}}
	for i := range proxies {
		proxies[i], err = processes.StartProxy(proxytest.Ctx, builtPrograms(t).Proxy, store.Addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(proxies[i].Kill)
		h.Addrs = append(h.Addrs, proxies[i].Addr)
	}
	h.Releaser = proxytest.Dial(t, h.Addrs[0])
	h.Run(12, 20, 6, func(random *rand.Rand) {
		killed := proxies[1+random.IntN(2)]
		h.AwaitMaker()
		killed.Kill()
		if err := killed.Start(proxytest.Ctx); err != nil {
			t.Fatal(err)
		}
	})
	for _, p := range proxies {
		if text := p.Alarms(); text != "" {
			t.Error(text)
		}
	}
	if h.Lost.Load() == 0 {
		t.Error("no client has lost its proxy")
	}
	t.Logf("%d claims were left behind", h.Returned)
}
