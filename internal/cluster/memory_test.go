package cluster_test

import (
	"fmt"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
)

// While one node is silent, the replies of the other to requests of both do not pile up.
func TestRepliesOfPartsAreBounded(t *testing.T) {
	c := testredis.StartCluster(t, 2, 0)
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
	awaitStuck(t, c.Nodes[0])
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

// Replies that are joined are bounded together, however many nodes and slots they come from. The
// client goes on behind the error.
func TestJoinedRepliesAreBounded(t *testing.T) {
	c := testredis.StartCluster(t, 2, 0)
	k := open(t, c)
	const size = 30 << 20
	keys := []string{keyAt(t, c, 0, "a"), keyAt(t, c, 1, "b"), keyAt(t, c, 0, "c")}
	for _, key := range keys {
		k.expect(fmt.Sprintf("SETRANGE %s %d x", key, size-1), fmt.Sprintf(":%d\r\n", size))
	}
	for n := 2; n <= len(keys); n++ {
		k.send("MGET "+strings.Join(keys[:n], " "), "PING")
		got, all := k.reply(), n*size <= 64<<20
		if all != (got[0] == '*') || !all && !strings.Contains(got, "too large to be put together") {
			t.Errorf("%d values: %.100q", n, got)
		}
		k.replies("+PONG\r\n")
	}
}

// Most of a large reply that the client leaves unread stays with the node.
func TestUnreadReplyIsBounded(t *testing.T) {
	c := testredis.StartCluster(t, 1, 0)
	k := open(t, c)
	const size = 40 << 20
	k.expect(fmt.Sprintf("SETRANGE long %d x", size-1), fmt.Sprintf(":%d\r\n", size))
	before := heap()
	k.send("GET long")
	awaitStuck(t, c.Nodes[0])
	if grown := heap() - before; grown > 10<<20 {
		t.Errorf("%d MB are held", grown>>20)
	}
	if got, want := len(k.reply()), size+len("$41943040\r\n\r\n"); got != want {
		t.Errorf("the reply has %d bytes, not %d", got, want)
	}
}

// awaitStuck returns when a node cannot send what it has for a client: nobody reads it.
func awaitStuck(t *testing.T, node *testredis.Server) {
	t.Helper()
	// Redis 8.6 does not count a large value as the client's memory, but what it has sent.
	memory := regexp.MustCompile(` omem=[1-9]\d*| obl=[1-9]\d* .* tot-net-out=\d+`)
	last, same := "", 0
	testwait.Until(t, "the node can send no more", func() bool {
		unsent := memory.FindString(node.Ask("CLIENT", "LIST"))
		if same++; unsent == "" || unsent != last {
			last, same = unsent, 0
		}
		return same == 50
	})
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
