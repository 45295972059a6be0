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

	"lockproxy/internal/test/testredis"
)

// Random faults of a group with Sentinels.
func TestSentinelRandomFaults(t *testing.T) {
	t.Parallel()
	g := testredis.StartGroup(t, testredis.GroupOptions{})
	underRandomFaults(t, startUnderWork(t, g, g.URL(), 2), sentinelFaults)
}

// Random faults of a cluster.
func TestClusterRandomFaults(t *testing.T) {
	t.Parallel()
	underRandomFaults(t, startClusterUnderWork(t, 2*time.Second), clusterFaults)
}

// judgedEvery is after how many faults what clients saw is judged, and others go on.
const judgedEvery = 20

// underRandomFaults does as many faults as LOCKPROXY_TEST_FAILOVERS says. Which, and to which
// locks, follows from LOCKPROXY_TEST_SEED.
func underRandomFaults[S any](t *testing.T, u *underWork[S], faults []fault[S]) {
	left, err := strconv.Atoi(cmp.Or(os.Getenv("LOCKPROXY_TEST_FAILOVERS"), "6"))
	if err != nil {
		t.Fatal(err)
	}
	seed, _ := strconv.ParseUint(os.Getenv("LOCKPROXY_TEST_SEED"), 10, 64)
	seed = cmp.Or(seed, uint64(rand.Uint32()))
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	var plain, safe figures
	for round := 0; left > 0; round++ {
		u.work(t, fmt.Sprint("-", round), seed+uint64(round))
		keys := u.keys(4)
		for n := min(left, judgedEvery); n > 0; n-- {
			left--
			u.inflict(t, faults[random.IntN(len(faults))], keys[random.IntN(len(keys))])
		}
		p, s := u.finish(t, true)
		plain.add(p)
		safe.add(s)
	}
	t.Logf("without --min-replicas: %v", plain)
	t.Logf("with --min-replicas: %v", safe)
}
