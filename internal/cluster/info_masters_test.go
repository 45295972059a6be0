package cluster_test

import (
	"regexp"
	"strings"
	"testing"

	"lockproxy/internal/test/testredis"
)

// INFO adds up the counts of all masters, and says which master the rest is from.
func TestInfoOfAllMasters(t *testing.T) {
	t.Parallel()
	c := testredis.StartCluster(t, 3, 0)
	k := open(t, c)
	k.expect("CONFIG RESETSTAT", ok)
	for i := range 3 {
		k.expect("SET "+keyAt(t, c, i, "info")+" 1", ok)
	}
	for _, proto := range []string{"2", "3"} {
		k.ask("HELLO " + proto)
		if got := k.ask("INFO keyspace"); !strings.Contains(got, "\r\ndb0:keys=3,expires=0,") ||
			proto == "3" && !strings.Contains(got, "\r\ntxt:# Keyspace") {
			t.Errorf("RESP%s: INFO keyspace: %q", proto, got)
		}
		got := k.ask("INFO everything")
		for _, want := range []string{`\r\ncmdstat_set:calls=3,`, `\r\ndb0:keys=3,`,
			`\r\ninfo_node:127\.0\.0\.1:\d+\r\ninfo_masters:3\r\n`, `\r\nuptime_in_seconds:`,
		} {
			if !regexp.MustCompile(want).MatchString(got) {
				t.Errorf("RESP%s: INFO has no %s: %q", proto, want, got)
			}
		}
	}
	if got := k.ask("INFO replication"); !strings.Contains(got, "\r\ninfo_masters:1\r\n") ||
		!strings.Contains(got, "\r\nrole:master\r\n") {
		t.Errorf("INFO replication: %q", got)
	}
}
