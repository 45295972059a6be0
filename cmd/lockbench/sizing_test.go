package main

import (
	"strings"
	"testing"
)

func TestModel(t *testing.T) {
	m := model{r: 20, rWait: 40, p: 35, g: 1, gAcross: 2, m: 1 << 20, n: 10 << 20,
		nShard: 1 << 20, k: 2048, e: 1.5, rAlone: 30}
	if got := m.rate(10, m.r); int(got+0.5) != 350000 {
		t.Errorf("%v locks/s of 10 shards", got)
	}
	if shards, proxies := m.shards(350001), m.proxies(349999); shards != 11 || proxies != 18 {
		t.Errorf("%d shards, %d proxies", shards, proxies)
	}
	if got := oneLock(9, m.g); got != 100 {
		t.Errorf("a lock held for 9 ms: %v a second", got)
	}
	if got := m.memory(6, 5, 2, 3); got != (3+2*16+3*5*6)<<20 {
		t.Errorf("clients in front of 6 shards: %v bytes", got)
	}
	got := m.predictions().markdown("")
	for _, want := range []string{
		"| shards | 10 | 100 | 1,000 |\n",
		"| locks/s, nobody waits | 350,000 | 3,500,000 | 35,000,000 |\n",
		"| connections at a node, no client needs a home | 90 | 875 | 8,750 |\n",
		"| — all do | 1,090 | 10,875 | 108,750 |\n",
		"| a failover stops, of all locks | 10.0 % for 6.5 s | 1.0 % for 6.5 s | 0.1 % for 6.5 s |\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

func TestSizingChecks(t *testing.T) {
	s := newSizing(true)
	for i := range s.shards.results {
		s.shards.results[i] = []*shardRun{{redis: float64(20 + i), proxy: 40, idle: 2, busiest: 1.01}}
	}
	for i := range s.holds.results {
		s.holds.results[i] = []*holdRun{{hold: holds[i/2], every: holds[i/2] + 1e6, redis: 40}}
	}
	for i := range s.memory.results {
		s.memory.results[i] = &footprintRun{idle: 7168, own: 5.33, withHomes: 305.33,
			home: float64(10+footprints[i]) * 1024, scripts: 4.4}
	}
	s.takeover.results[0] = []*takeoverRun{{took: 2.5, others: 1}}
	got := s.checks(s.model()).markdown("")
	for _, want := range []string{
		"| — with 6 | 21.0 µs, 24.0 | 1.14 |\n",
		"| 1 / (h + g), h = 10ms, two proxies | 90.9 /s | 1.00 |\n",
		"| connections at a node of 3, no homes: 5.3 | 5.3 | 1.00 |\n",
		"| — 300 homes more | 305.3 | 1.00 |\n",
		"| n + 3 n1: a client with a home in front of 3 shards | 13.0 KB | 1.00 |\n",
		"| a failover takes the node timeout, 1s, and e | 2.5 s | 1.00 |\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}
