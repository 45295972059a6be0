package main

import (
	"fmt"
	"time"
)

// Sizes of the lock workloads.
const (
	lockClients = 100 // of the contended lock and of the jobs
	lineLength  = 1000
	jobCount    = 1000
	lockTime    = 2 * time.Second // of one run
	tryPause    = 10 * time.Millisecond
	quietTime   = 3 * time.Second // for which a held lock is watched
	handOvers   = 50              // releases of it after that
	sharers     = 1000
)

// locksPart is the workloads of locks that clients compete for.
func locksPart(quick bool) *part {
	rounds, d := 3, lockTime
	if quick {
		rounds, d = 1, time.Second
	}
	needed := needs{lockproxies: 2, targets: []string{viaHAProxy}}
	return &part{rounds: rounds, needs: needed, others: true, jobs: []job{
		newContention(lockClients, d, tryPause),
		&waiting{clients: lineLength, quiet: quietTime, tries: handOvers},
		newSeed(lockClients, jobCount, tryPause),
		newHolding(sharers, pairClients, d),
	}}
}

func locksDocument(parts ...*part) *document {
	return &document{name: "bench-locks", head: locksHead, parts: parts}
}

func locksHead(l *lab) string {
	return fmt.Sprintf(`# Locks next to each other

Written by `+"`make bench-locks` or `make bench`"+`; run it again for the figures of your machine.

%s; %s; Redis %s; lockproxy %s%s; %s; %s.

All servers and clients share the one machine, by loopback: what a client costs is lost to the
servers. So LOCK is driven by a light client of lockbench's own, and by go-redis as well. Figures
are medians over the rounds, in brackets the least and most of them; the cases of a workload take
turns within each round. Figures of a small or busy machine vary: the spread says how much.
`, machine(), describeOthers(l.others), l.versions.redis, l.versions.lockproxy, l.withArgs(),
		lockLibraries(), platform())
}
