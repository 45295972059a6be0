//go:build linux

package check

import (
	"strings"

	"lockproxy/internal/test/faults/history"
)

// all finds UNLOCKALLs that released one of two locks though their client had both.
func (c *checker) all(ops []history.Op, grants []grant) {
	for _, o := range ops {
		if o.Kind != history.Unlock || o.With == "" {
			continue
		}
		for _, g := range grants {
			if g.op.Result != o.Token || o.Return == 0 && !strings.HasPrefix(o.Got, ":") {
				continue
			}
			c.checked("all")
			until := g.op.Call + g.op.Timeout - c.bounds.Lease.Nanoseconds()
			if o.Got == ":1" && max(o.Call, o.Return, o.Left) < until &&
				!c.broken(g.op.Call, until, breaksLeases) {
				c.violated("all", []history.Op{g.op, o},
					"UNLOCKALL of %s and %s with token %d released one of them", o.Key, o.With, o.Token)
			}
		}
	}
}
