package cluster_test

import (
	"testing"

	"lockproxy/internal/test/testredis"
)

// While a slot moves, transactions and watches follow its keys to the node that gets it, also keys
// that no node has yet.
func TestTransactionsWhileASlotMoves(t *testing.T) {
	t.Parallel()
	for _, where := range []string{"a master", "a new node"} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			c := testredis.StartCluster(t, 2, 0)
			k, other := open(t, c), open(t, c)
			slot := c.Slot("{m}")
			from, to := c.MasterOf(slot), c.Nodes[0]
			if to == from {
				to = c.Nodes[1]
			}
			if where == "a new node" {
				to = c.AddNode()
			}
			k.expect("MSET {m}gone 1 {m}here 1", ok)
			m := c.BeginMigration(from, to, slot)
			m.MoveKey("{m}gone")
			k.expect("GET {m}gone", "$1\r\n1\r\n")
			k.expect("SET {m}new 1", ok)
			for _, key := range []string{"{m}gone", "{m}new", "{m}newer", "{m}here"} {
				k.expect("SET "+key+" 1", ok)
				k.send("MULTI", "INCR "+key, "EXEC", "GET "+key)
				k.replies(ok, queued, "*1\r\n:2\r\n", "$1\r\n2\r\n")
				k.expect("MULTI", ok)
				k.expect("INCR "+key, queued)
				k.expect("EXEC", "*1\r\n:3\r\n")

				k.expect("WATCH "+key, ok)
				k.expect("GET "+key, "$1\r\n3\r\n")
				k.send("MULTI", "INCR "+key, "EXEC", "GET "+key)
				k.replies(ok, queued, "*1\r\n:4\r\n", "$1\r\n4\r\n")

				k.expect("WATCH "+key, ok)
				k.expect("WATCH "+key, ok)
				other.expect("INCR "+key, ":5\r\n")
				k.expect("MULTI", ok)
				k.expect("INCR "+key, queued)
				k.expect("EXEC", notRun)

				k.expect("WATCH "+key, ok)
				k.expect("UNWATCH", ok)
				other.expect("INCR "+key, ":6\r\n")
				k.send("MULTI", "INCR "+key, "EXEC")
				k.replies(ok, queued, "*1\r\n:7\r\n")

				k.expect("WATCH "+key, ok)
				k.expect("MULTI", ok)
				k.expect("INCR "+key, queued)
				k.expect("DISCARD", ok)
			}
			k.send("MULTI", "INCR {m}newest", "INCR {m}newest", "EXEC")
			k.replies(ok, queued, queued, "*2\r\n:1\r\n:2\r\n")
			k.expect("WATCH {m}gone", ok)
			m.MoveKeys()
			m.Finish()
			k.expect("MULTI", ok)
			k.expect("INCR {m}gone", queued)
			k.expect("EXEC", "*1\r\n:8\r\n")
		})
	}
}
