package main

import (
	"math"

	"lockproxy/cmd/lockbench/stat"
)

// model is the constants of docs/scale.md, by the letters that it gives them.
type model struct {
	r, rAlone    float64 // µs of Redis CPU for a pair: of a busy shard, of one with little to do
	rWait        float64 // the same where all wait
	p, pAlone    float64 // µs of lockproxy's CPU for a pair, busy and with little to do
	g, gAcross   float64 // hand-over within a proxy, and across two, ms
	q            float64 // scripts/s for a lock that clients wait for
	m            float64 // bytes in lockproxy for a client without a home
	n, nShard    float64 // for one that has a home, and for each shard in addition
	mWait, mHeld float64 // for a waiter in addition to m, for a held lock
	k, l         float64 // bytes in Redis for a connection and for a lock
	e            float64 // s from the node timeout to the first lock
}

const (
	busy           = 0.7 // of a core, so that queues stay short
	clientsByShard = 100
)

// rate is locks/s of so many shards, where a lock costs Redis so many µs.
func (model) rate(shards int, cost float64) float64 { return float64(shards) * busy * 1e6 / cost }

// shards is how many are needed for so many locks/s that nobody waits for.
func (m model) shards(rate float64) int { return int(math.Ceil(rate * m.r / 1e6 / busy)) }

// oneLock is how often a lock changes hands if it is held for so many ms.
func oneLock(hold, handOver float64) float64 { return 1000 / (hold + handOver) }

// proxies is how many are needed for so many locks/s, with a core each.
func (m model) proxies(rate float64) int { return int(math.Ceil(rate * m.p / 1e6 / busy)) }

// home is the bytes that an idle client with a home takes in lockproxy.
func (m model) home(shards int) float64 { return m.n + float64(shards)*m.nShard }

// memory is the bytes that idle clients, of which some have homes, take in all proxies, with the
// proxies' own connections.
func (m model) memory(shards, clients, homes, proxies int) float64 {
	return float64(clients-homes)*m.m + float64(homes)*m.home(shards) +
		float64(ownConns*proxies*shards)*m.nShard
}

// connections are those at one node.
func connections(homes, proxies int) int { return homes + ownConns*proxies }

func median(values []float64) float64 { return stat.Of(values).Median }

func (s *sizing) model() model {
	one, three, six := s.memory.results[0], s.memory.results[1], s.memory.results[2]
	m := model{
		r:       s.shards.figure(fullShard, (*shardRun).redisCPU).Median,
		p:       s.shards.figure(fullShard, (*shardRun).proxyCPU).Median,
		rAlone:  s.shards.figure(threeShards, (*shardRun).redisCPU).Median,
		pAlone:  s.shards.figure(threeShards, (*shardRun).proxyCPU).Median,
		rWait:   s.holds.figure(0, 1, (*holdRun).cpu).Median,
		g:       s.holds.figure(0, 1, (*holdRun).handOver).Median,
		gAcross: s.holds.figure(0, 2, (*holdRun).handOver).Median,
		q:       three.scripts, m: three.idle, mWait: three.waiter, mHeld: three.held,
		k: three.connection, l: three.lock,
		e: s.takeover.figure(0, took).Median - takeovers[0].nodeTimeout.Seconds(),
	}
	m.nShard = (six.home - one.home) / 5
	m.n = one.home - m.nShard
	return m
}

func took(r *takeoverRun) float64     { return r.took }
func others(r *takeoverRun) float64   { return r.others }
func (r *shardRun) redisCPU() float64 { return r.redis }
func (r *shardRun) proxyCPU() float64 { return r.proxy }
func (r *holdRun) cpu() float64       { return r.redis }

func (j *takeover) figure(i int, of func(*takeoverRun) float64) stat.Spread {
	return stat.Of(over(j.results[i], of))
}
