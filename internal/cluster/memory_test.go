package cluster_test

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/testredis"
)

// While one node is silent, the replies of the other to requests of both do not pile up.
func TestRepliesOfPartsAreBounded(t *testing.T) {
	c := testredis.StartCluster(t, 2, 0, "--cluster-node-timeout", "60000")
	k := open(t, c)
	one, two := keyAt(t, c, 0, "m"), keyAt(t, c, 1, "m")
	value := strings.Repeat("v", 1<<20)
	k.send("SET "+one+" "+value, "SET "+two+" x", "MGET "+one+" "+two)
	k.replies(ok, ok)
	whole := k.reply()
	before := heap()
	c.Nodes[1].Pause()
	const n = 60
	for range n {
		k.send("MGET " + one + " " + two)
	}
	time.Sleep(1500 * time.Millisecond)
	if grown := heap() - before; grown > 40<<20 {
		t.Errorf("%d MB are held", grown>>20)
	}
	c.Nodes[1].Resume()
	for i := range n {
		if got := k.reply(); got != whole {
			t.Fatalf("reply %d has %d bytes", i, len(got))
		}
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
