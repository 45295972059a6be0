//go:build linux

package check

import (
	"strings"

	"lockproxy/internal/test/faults/history"
)

// writes compares each list, as it was in the end, with what was pushed to it.
func (c *checker) writes() {
	pushed := map[string][]history.Op{}
	for _, o := range c.ops {
		if o.Kind == history.Push {
			pushed[o.Key] = append(pushed[o.Key], o)
		}
	}
	for _, found := range c.ops {
		if found.Kind == history.List && found.Outcome == history.OK {
			c.list(found, pushed[found.Key])
		}
	}
}

func (c *checker) list(found history.Op, pushed []history.Op) {
	place := map[string]int{}
	for i, o := range pushed {
		place[o.Value] = i
	}
	seen := map[string]bool{}
	last := -1
	for _, value := range strings.Fields(found.Got) {
		i, ours := place[value]
		switch {
		case !ours:
			c.violated("writes", []history.Op{found},
				"list %s holds %q, which its client never sent", found.Key, value)
			continue
		case seen[value]:
			c.violated("writes", []history.Op{pushed[i], found}, "list %s: %q was done twice",
				found.Key, value)
		case pushed[i].Outcome == history.Refused:
			c.violated("writes", []history.Op{pushed[i], found},
				"list %s: %q was refused, and done", found.Key, value)
		case i < last:
			c.violated("writes", []history.Op{pushed[i], pushed[last], found},
				"list %s: %q was done after %q, which was sent after it", found.Key, value,
				pushed[last].Value)
		}
		seen[value] = true
		last = max(last, i)
	}
	for _, o := range pushed {
		c.checked("writes")
		if o.Outcome == history.OK && !seen[o.Value] &&
			!c.broken(o.Call, found.Call, breaksWrites) {
			c.violated("writes", []history.Op{o, found},
				"list %s: %q was acknowledged, and is not there", o.Key, o.Value)
		}
	}
}
