//go:build faults && linux

package faults_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"lockproxy/internal/testredis"
)

// Random faults of a group with Sentinels.
func TestSentinelRandomFaults(t *testing.T) {
	t.Parallel()
	g := testredis.StartGroup(t, testredis.GroupOptions{})
	// Sentinels pause between two failovers for twice their failover-timeout.
	underRandomFaults(t, startUnderWork(t, g, g.URL(), 2, 2*time.Second), sentinelFaults)
}

// Random faults of a cluster.
func TestClusterRandomFaults(t *testing.T) {
	t.Parallel()
	underRandomFaults(t, startClusterUnderWork(t, 2*time.Second), clusterFaults)
}

// judgedEvery is how long clients work before what they saw is judged, and others go on.
const judgedEvery = 2 * time.Minute

// underRandomFaults does faults for as long as LOCKPROXY_TEST_FAILOVERS says. Which, and to which
// locks, follows from LOCKPROXY_TEST_SEED.
func underRandomFaults[S any](t *testing.T, u *underWork[S], faults []fault[S]) {
	lasts, err := time.ParseDuration(cmp.Or(os.Getenv("LOCKPROXY_TEST_FAILOVERS"), "30s"))
	if err != nil {
		t.Fatal(err)
	}
	seed, _ := strconv.ParseUint(os.Getenv("LOCKPROXY_TEST_SEED"), 10, 64)
	seed = cmp.Or(seed, uint64(rand.Uint32()))
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	var plain, safe figures
	end := time.Now().Add(lasts)
	for round := 0; round == 0 || time.Now().Before(end); round++ {
		u.work(t, fmt.Sprint("-", round), seed+uint64(round))
		began, keys := time.Now(), u.keys(4)
		for time.Now().Before(end) && time.Since(began) < judgedEvery {
			u.inflict(t, faults[random.IntN(len(faults))], keys[random.IntN(len(keys))])
		}
		p, s := u.finish(t, true)
		plain.add(p)
		safe.add(s)
	}
	t.Logf("without --min-replicas: %v", plain)
	t.Logf("with --min-replicas: %v", safe)
}
