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
the share of a core that is used. H is how many clients need a connection of their own, a
[home](compatibility.md#which-connections-are-used): those that log in themselves, are subscribed,
block or are in a transaction. One that only reads, writes and locks needs none.

- **Locks per shard:** u / r locks/s where nobody waits, u / rw where all are waited for.
- **One lock:** 1 / (h + g) a second, g2 for g if its clients come by several proxies. More shards
  do not help a lock that all want.
- **Proxies:** P = locks/s * p / u, each with a core.
- **Waiters:** a lock that is waited for costs q scripts/s for each proxy, however many wait.
- **Connections:** H + 5 P at each node, S times that in all. 5 is a lane, which clients share, and
  four spare homes. Each proxy has one more at one node, and a few more where clients wait.
- **Memory:** m in a proxy for each idle client, n + S * n1 for one that has a home, w more for a
  waiter, h1 for a held lock, n1 for each of its own connections. In Redis k for each connection at
  each node, l for each name that was locked in the last ten minutes
  (` + "`--fence-retention`" + `).
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
- **Limits of connections.** Redis's maxclients (10,000) must be above H + 5 P, with room for homes
  that clients give back: 32 a proxy, 128 in a crowd. Clients without a home count for the proxy
  alone: ` + "`--max-clients`" + `, and one open file each; one with a home takes 1 + S. A login in
  ` + "`--upstream`" + ` saves clients their own. With ` + "`--upstream-mode dedicated`" + ` H is C.
- **Failures that are not a crash.** A silent machine takes longer, see
  [cluster.md](cluster.md#when-nodes-fail-and-slots-move). With cluster-require-full-coverage the
  other shards stop for a part of the time too. A majority of many masters agrees more slowly.
- **Durability.** appendfsync always, --min-replicas and --require-fsync add a wait to each lock:
  [durability.md](durability.md).
`

// example is a case worked through.
func (m model) example() *section {
	const locks, clients, homes, hold = 100000, 5000, 500, 5.0
	shards, proxies := m.shards(locks), m.proxies(locks)
	every := 1 / oneLock(hold, m.gAcross)
	return &section{title: "An example", header: []string{"question", "answer", "by"},
		before: fmt.Sprintf("%s locks/s, %s clients, of which %d log in themselves, and one lock "+
			"for which all want %v ms.", thousands(locks), thousands(clients), homes, hold),
		rows: [][]string{
			{"shards", thousands(shards), "locks/s * r / u"},
			{"proxies", thousands(proxies), "locks/s * p / u"},
			{"connections at a node", thousands(connections(homes, proxies)), "H + 5 P"},
			{"memory of a proxy for connections",
				size(m.memory(shards, clients, homes, proxies) / float64(proxies)),
				"((C - H) * m + H * (n + S * n1)) / P + 5 * S * n1"},
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
	row("m: lockproxy's memory for an idle client", kb(m.m), "clients that have sent a GET")
	row("n: for one that has a home", kb(m.n),
		"clients that have logged in; 1 and 6 masters, a line through both")
	row("n1: and for each shard", kb(m.nShard), "the same")
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
		own := ownConns + 1/float64(footprints[i])
		t.row(fmt.Sprintf("connections at a node of %d, no homes: %.1f", footprints[i], own),
			f1(r.own), f2(r.own/own))
		own += float64(s.memory.clients)
		t.row(fmt.Sprintf("— %s homes more", thousands(s.memory.clients)), f1(r.withHomes),
			f2(r.withHomes/own))
	}
	polls := 1e3 / 227.5 // lockproxy polls every 210 to 245 ms
	waiting := s.memory.results[1]
	t.row(fmt.Sprintf("q does not depend on how many wait: %s", thousands(s.memory.clients)),
		f1(waiting.scripts)+" /s, by the code "+f1(polls), f2(waiting.scripts/polls))
	one, six := s.memory.results[0].idle, s.memory.results[2].idle
	t.row("m is the same with 6 shards as with 1", kb(one)+", "+kb(six), f2(six/one))
	t.row("n + 3 n1: a client with a home in front of 3 shards", kb(waiting.home),
		f2(waiting.home/m.home(3)))
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
	proxies := func(shards int) int { return m.proxies(m.rate(shards, m.r)) }
	rows := []struct {
		name string
		of   func(shards int) string
	}{
		{"locks/s, nobody waits", func(n int) string { return round(m.rate(n, m.r)) }},
		{"— at r0, the least", func(n int) string { return round(m.rate(n, m.rAlone)) }},
		{"locks/s, always waited for", func(n int) string { return round(m.rate(n, m.rWait)) }},
		{"one lock held for 10 ms, a second", func(int) string { return round(oneLock(10, m.g)) }},
		{"proxies, for the first line", func(n int) string { return thousands(proxies(n)) }},
		{"clients", func(n int) string { return thousands(n * clientsByShard) }},
		{"connections at a node, no client needs a home", func(n int) string {
			return thousands(connections(0, proxies(n)))
		}},
		{"— all do", func(n int) string {
			return thousands(connections(n*clientsByShard, proxies(n)))
		}},
		{"a node's memory for these", func(n int) string {
			return size(m.k * float64(connections(n*clientsByShard, proxies(n))))
		}},
		{"memory of all proxies for connections, no client needs a home", func(n int) string {
			return size(m.memory(n, n*clientsByShard, 0, proxies(n)))
		}},
		{"— all do", func(n int) string {
			return size(m.memory(n, n*clientsByShard, n*clientsByShard, proxies(n)))
		}},
		{"times a second that each node is asked for the map", func(n int) string {
			return f1(float64(proxies(n)) / float64(n))
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
