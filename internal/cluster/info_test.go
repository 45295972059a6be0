package cluster

import "testing"

// INFO of several masters has sums where possible, and otherwise the first one's values.
func TestJoinInfo(t *testing.T) {
	got := joinInfo([]string{
		"# Server\r\nredis_version:7\r\n\r\n" +
			"# Stats\r\ncommands:2\r\nlatest_fork_usec:7\r\nkbps:0.25\r\nrole:x\r\n\r\n" +
			"# Commandstats\r\ncmdstat_get:calls=1,usec=10,usec_per_call=10.00,failed_calls=0\r\n" +
			"\r\n# Keyspace\r\ndb0:keys=4,expires=1,avg_ttl=100\r\n",
		"# Server\r\nredis_version:6\r\n\r\n" +
			"# Stats\r\ncommands:3\r\nlatest_fork_usec:9\r\nkbps:0.50\r\nrole:y\r\n\r\n" +
			"# Commandstats\r\ncmdstat_set:calls=1,usec=1,usec_per_call=1.00,failed_calls=2\r\n" +
			"cmdstat_get:calls=3,usec=2,usec_per_call=0.67,failed_calls=1\r\n" +
			"\r\n# Keyspace\r\ndb0:keys=1,expires=3,avg_ttl=200\r\n",
		"# Server\r\nredis_version:6\r\n\r\n# Stats\r\n\r\n# Commandstats\r\n\r\n# Keyspace\r\n",
	}, "a:1")
	want := "# Server\r\ninfo_node:a:1\r\ninfo_masters:3\r\nredis_version:7\r\n" +
		"\r\n# Stats\r\ncommands:5\r\nlatest_fork_usec:9\r\nkbps:0.75\r\nrole:x\r\n\r\n" +
		"# Commandstats\r\n" +
		"cmdstat_get:calls=4,usec=12,usec_per_call=3.00,failed_calls=1\r\n" +
		"cmdstat_set:calls=1,usec=1,usec_per_call=1.00,failed_calls=2\r\n" +
		"\r\n# Keyspace\r\ndb0:keys=5,expires=4,avg_ttl=175\r\n"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	some := "# Keyspace\r\ndb0:keys=1,expires=0,avg_ttl=0\r\n"
	if got := joinInfo([]string{"# Keyspace\r\n", some}, "a:1"); got != some {
		t.Errorf("keyspace alone: %q", got)
	}
}
