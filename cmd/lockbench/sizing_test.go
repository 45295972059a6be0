package main

import (
	"strings"
	"testing"
)

func TestModel(t *testing.T) {
	m := model{r: 20, rWait: 40, p: 35, g: 1, gAcross: 2, m: 10 << 10, mShard: 1 << 10, k: 2048,
		e: 1.5, rAlone: 30, mClosed: 1024}
	if got := m.rate(10, m.r); int(got+0.5) != 350000 {
		t.Errorf("%v locks/s of 10 shards", got)
	}
	if shards, proxies := m.shards(350001), m.proxies(349999); shards != 11 || proxies != 18 {
		t.Errorf("%d shards, %d proxies", shards, proxies)
	}
	if got := oneLock(9, m.g); got != 100 {
		t.Errorf("a lock held for 9 ms: %v a second", got)
	}
	if got := m.client(6); got != 16<<10 {
		t.Errorf("a client in front of 6 shards: %v bytes", got)
	}
	got := m.predictions().markdown("")
	for _, want := range []string{
		"| shards | 10 | 100 | 1,000 |\n",
		"| locks/s, nobody waits | 350,000 | 3,500,000 | 35,000,000 |\n",
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
		s.memory.results[i] = &footprintRun{idle: float64(10+footprints[i].masters) * 1024,
			connections: 305, expectedConnections: 305, scripts: 4.4}
	}
	s.takeover.results[0] = []*takeoverRun{{took: 2.5, others: 1}}
	got := s.checks(s.model()).markdown("")
	for _, want := range []string{
		"| — with 6 | 21.0 µs, 24.0 | 1.14 |\n",
		"| 1 / (h + g), h = 10ms, two proxies | 90.9 /s | 1.00 |\n",
		"| m + 3 m1: an idle client in front of 3 shards | 13.0 KB | 1.00 |\n",
		"| a failover takes the node timeout, 1s, and e | 2.5 s | 1.00 |\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}
