package main

import (
	"fmt"
	"math"

	"lockproxy/cmd/lockbench/stat"
)

const sizingHead = `# Sizing

How many shards, proxies and connections locks need, and what the answer rests on. Written by
` + "`make bench-scale`" + `; run it again for the constants of your machine.

%s; %s; Redis %s; lockproxy %s%s; %s.

A lock is in one slot, so on one shard, and no shard asks another about it. That makes the model a
few lines. S is the number of shards, P of proxies, C of all clients, h how long a lock is held, u
the share of a core that is used.

- **Locks per shard:** u / r locks/s where nobody waits, u / rw where all are waited for.
- **One lock:** 1 / (h + g) a second, g2 for g if its clients come by several proxies. More shards
  do not help a lock that all want.
- **Proxies:** P = locks/s * p / u, each with a core.
- **Waiters:** a lock that is waited for costs q scripts/s for each proxy, however many wait.
- **Connections:** C + 5 P at each node, S times that in all. 5 is a lane and four spare homes;
  ` + "`--home-idle`" + ` leaves only these for clients that only lock. Where clients wait,
  each proxy has a few more.
- **Memory:** m + S * m1 in a proxy for each idle client, m0 with ` + "`--home-idle`" + `, w more for
  a waiter, h1 for a held lock. In Redis l for each name that was locked in the last ten minutes
  (` + "`--fence-retention`" + `), k for each connection at each node.
- **Failover:** the locks of one shard, 1 / S of all, stop for cluster-node-timeout + e.
`

const sizingLimits = `
## What is not in it

- **The network.** All was measured by loopback. Add a round trip between proxy and Redis to g, and
  to every LOCK. CPU for TLS is extra.
- **Neighbours.** On a machine that others use as well, CPU for a lock is higher.
- **Names that are not alike.** A few locks that are taken most of the time fill one shard. All
  locks with one hash tag are on one shard.
- **The cluster's bus.** Gossip was measured up to six nodes. Redis recommends at most about 1,000.
  The map, which each proxy asks for once a second, grows with S.
- **Limits of connections.** Each node has a connection for each client, so Redis's maxclients
  (10,000) bounds all clients together. Beyond that use ` + "`--home-idle`" + `.
- **Failures that are not a crash.** A silent machine takes longer, see
  [cluster.md](cluster.md#when-nodes-fail-and-slots-move). With cluster-require-full-coverage the
  other shards stop for a part of the time too. A majority of many masters agrees more slowly.
- **Durability.** appendfsync always, --min-replicas and --require-fsync add a wait to each lock:
  [durability.md](durability.md).
`

// example is a case worked through.
func (m model) example() *section {
	const locks, clients, hold = 100000, 5000, 5.0
	shards, proxies := m.shards(locks), m.proxies(locks)
	every := 1 / oneLock(hold, m.gAcross)
	return &section{title: "An example", header: []string{"question", "answer", "by"},
		before: fmt.Sprintf("%s locks/s, %s clients, and one lock for which all want %v ms.",
			thousands(locks), thousands(clients), hold),
		rows: [][]string{
			{"shards", thousands(shards), "locks/s * r / u"},
			{"proxies", thousands(proxies), "locks/s * p / u"},
			{"connections at a node", thousands(connections(clients, proxies)), "C + 5 P"},
			{"memory of a proxy for clients", size(clients / float64(proxies) * m.client(shards)),
				"C / P * (m + S * m1)"},
			{"the one lock, a second", round(1 / every), "1 / (h + g2)"},
			{"a client's turn at it comes after", fmt.Sprintf("%.0f s", clients*every),
				"C * (h + g2)"},
		}}
}

func (m model) constants() *section {
	s := &section{title: "What was measured", header: []string{"constant", "here", "measured by"},
		before: "Of three masters where nothing else is said. CPU is what processes have used, so " +
			"it adds up on a machine that all share; what nodes and proxies use while nothing is " +
			"asked is not in it."}
	row := func(name, value, by string) { s.row(name, value, by) }
	row("r: Redis CPU for LOCK and UNLOCK, nobody waits", f1(m.r)+" µs", fmt.Sprintf(
		"1 master, asked for as much as it can: %d clients", shardClients))
	row("r0: the same, of a shard with little to do", f1(m.rAlone)+" µs",
		fmt.Sprintf("%d clients a master, a pair each %v", shardClients, shardRest))
	row("rw: the same, always waited for", f1(m.rWait)+" µs",
		fmt.Sprintf("one lock, %d clients, not held", holdClients))
	row("p: lockproxy's CPU for LOCK and UNLOCK", f1(m.p)+" µs", "as r")
	row("p0: the same, with little to do", f1(m.pAlone)+" µs", "as r0")
	row("g: hand-over within a proxy", f2(m.g)+" ms", "as rw, by 1 / rate")
	row("g2: hand-over with two proxies", f2(m.gAcross)+" ms", "the same clients at two")
	row("q: scripts of a lock that is waited for", f1(m.q)+" /s", "a quiet second, one proxy")
	row("m: lockproxy's memory for an idle client", kb(m.m), "1 and 6 masters, a line through both")
	row("m1: and for each shard", kb(m.mShard), "the same")
	row("m0: both, with `--home-idle`", kb(m.mClosed),
		"6 masters; what closed homes leave to be used again is in it")
	row("w: lockproxy's memory for a waiter", kb(m.mWait), "new clients, all at one lock")
	row("h1: lockproxy's memory for a held lock", kb(m.mHeld), "locks of one client")
	row("k: a node's memory for a connection", kb(m.k), "`used_memory`")
	row("l: Redis memory for a lock, its record included", kb(m.l), "`used_memory`")
	row("e: from the node timeout to the first LOCK", f1(m.e)+" s", "a master is killed")
	return s
}

func f1(v float64) string { return fmt.Sprintf("%.1f", v) }
func f2(v float64) string { return fmt.Sprintf("%.2f", v) }
func kb(v float64) string { return fmt.Sprintf("%.1f KB", v/1024) }

// checks compares what the model says with what was measured.
func (s *sizing) checks(m model) *section {
	t := &section{title: "What is assumed, and whether it holds",
		header: []string{"assumed", "measured", "ratio"},
		before: "A ratio of 1 says that the assumption holds. Figures are medians over the rounds, " +
			"in brackets the least and most. r0 does not hold where it is above 1: nodes " +
			"that share few cores are woken more often for the same work. Expect a shard with " +
			"a core by itself between r and r0."}
	cost := func(name, unit string, i, base int, of func(*shardRun) float64) {
		a, b := s.shards.figure(i, of), s.shards.figure(base, of)
		ratio := stat.Of(stat.Ratios(over(s.shards.results[i], of), over(s.shards.results[base], of)))
		t.row(name, fmt.Sprintf("%s %s, %s", f1(b.Median), unit, f1(a.Median)), ratio.Format("%.2f"))
	}
	redis, proxy := (*shardRun).redisCPU, (*shardRun).proxyCPU
	cost("r0 is the same with 2 shards as with 1", "µs", twoShards, oneShard, redis)
	cost("— with 3", "µs", threeShards, oneShard, redis)
	cost("— with 6", "µs", sixShards, oneShard, redis)
	cost("p0 is the same with 6 shards as with 1", "µs", sixShards, oneShard, proxy)
	cost("p0 is the same with 2 proxies, twice the clients", "µs", twoProxies, threeShards, proxy)
	cost("an idle node uses as much among 6 as alone", "ms/s", sixShards, oneShard,
		func(r *shardRun) float64 { return r.idle })
	t.row("locks spread evenly: the busiest of 6 shards", "to their mean", s.shards.figure(sixShards,
		func(r *shardRun) float64 { return r.busiest }).Format("%.2f"))
	for hold := 1; hold < len(holds); hold++ {
		for proxies, g := range []float64{m.g, m.gAcross} {
			rate := s.holds.figure(hold, proxies+1, func(r *holdRun) float64 {
				return 1000 / ms(r.every)
			})
			ratio := s.holds.figure(hold, proxies+1, func(r *holdRun) float64 {
				return 1000 / ms(r.every) / oneLock(ms(r.hold), g)
			})
			t.row(fmt.Sprintf("1 / (h + g), h = %v, %s", holds[hold], []string{"one proxy",
				"two proxies"}[proxies]), f1(rate.Median)+" /s",
				ratio.Format("%.2f"))
		}
	}
	for i, r := range s.memory.results {
		name := fmt.Sprintf("connections at a node of %d: clients + %d", footprints[i].masters,
			laneAnd)
		if footprints[i].homeIdle {
			name = fmt.Sprintf("with `--home-idle`: %d", laneAnd)
		}
		t.row(name, fmt.Sprintf("%.1f", r.connections), f2(r.connections/r.expectedConnections))
	}
	polls := 1e3 / 227.5 // lockproxy polls every 210 to 245 ms
	waiting := s.memory.results[1]
	t.row(fmt.Sprintf("q does not depend on how many wait: %s", thousands(s.memory.clients)),
		f1(waiting.scripts)+" /s, by the code "+f1(polls), f2(waiting.scripts/polls))
	three := s.memory.results[1].idle
	t.row("m + 3 m1: an idle client in front of 3 shards", kb(three), f2(three/m.client(3)))
	for i, c := range takeovers {
		if len(s.takeover.results[i]) == 0 {
			continue
		}
		name := fmt.Sprintf("a failover takes the node timeout, %v, and e", c.nodeTimeout)
		if c.fullCoverage {
			name += ", full coverage"
		}
		t.row(name, s.takeover.figure(i, took).Format("%.1f")+" s", f2(s.takeover.figure(i,
			took).Median/(c.nodeTimeout.Seconds()+m.e)))
		t.row("— locks of other shards go on meanwhile", "rate to that before",
			s.takeover.figure(i, others).Format("%.2f"))
	}
	return t
}

// predictions is what the model says of more shards than fit on a machine.
func (m model) predictions() *section {
	t := &section{title: "What it predicts", header: []string{"shards"}, before: fmt.Sprintf(
		"A core for each shard and for each proxy, %.0f %% of it used; %d clients a shard; "+
			"a node timeout of 5 s.", 100*busy, clientsByShard)}
	sizes := []int{10, 100, 1000}
	rows := []struct {
		name string
		of   func(shards int) string
	}{
		{"locks/s, nobody waits", func(n int) string { return round(m.rate(n, m.r)) }},
		{"— at r0, the least", func(n int) string { return round(m.rate(n, m.rAlone)) }},
		{"locks/s, always waited for", func(n int) string { return round(m.rate(n, m.rWait)) }},
		{"one lock held for 10 ms, a second", func(int) string { return round(oneLock(10, m.g)) }},
		{"proxies, for the first line", func(n int) string {
			return thousands(m.proxies(m.rate(n, m.r)))
		}},
		{"clients", func(n int) string { return thousands(n * clientsByShard) }},
		{"connections at a node", func(n int) string {
			return thousands(connections(n*clientsByShard, m.proxies(m.rate(n, m.r))))
		}},
		{"— with `--home-idle`", func(n int) string {
			return thousands(connections(0, m.proxies(m.rate(n, m.r))))
		}},
		{"a node's memory for them", func(n int) string {
			return size(m.k * float64(connections(n*clientsByShard, m.proxies(m.rate(n, m.r)))))
		}},
		{"memory of all proxies for idle clients", func(n int) string {
			return size(float64(n*clientsByShard) * m.client(n))
		}},
		{"— with `--home-idle`", func(n int) string {
			return size(float64(n*clientsByShard)*m.mClosed +
				float64(laneAnd*n*m.proxies(m.rate(n, m.r)))*m.mShard)
		}},
		{"times a second that each node is asked for the map", func(n int) string {
			return f1(float64(m.proxies(m.rate(n, m.r))) / float64(n))
		}},
		{"a failover stops, of all locks", func(n int) string {
			return fmt.Sprintf("%.1f %% for %.1f s", 100/float64(n), 5+m.e)
		}},
		{"a failover comes every, if a master fails once a year", func(n int) string {
			return fmt.Sprintf("%.1f days", 365/float64(n))
		}},
	}
	for _, n := range sizes {
		t.header = append(t.header, thousands(n))
	}
	for _, r := range rows {
		cells := []string{r.name}
		for _, n := range sizes {
			cells = append(cells, r.of(n))
		}
		t.row(cells...)
	}
	return t
}

// round keeps two digits.
func round(v float64) string {
	unit := math.Pow(10, math.Floor(math.Log10(v))-1)
	return thousands(int(math.Round(v/unit) * unit))
}

func size(bytes float64) string {
	if bytes >= 1<<30 {
		return fmt.Sprintf("%.1f GB", bytes/(1<<30))
	}
	return fmt.Sprintf("%.0f MB", bytes/(1<<20))
}
