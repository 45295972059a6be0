package main

import (
	"testing"
	"time"
)

const infoBefore = "# CPU\r\nused_cpu_sys:1.500000\r\nused_cpu_user:2.250000\r\n" +
	"used_cpu_sys_children:9.0\r\n\r\n" +
	"# Stats\r\nkeyspace_hits:5\r\nkeyspace_misses:2\r\n" +
	"\r\n# Commandstats\r\ncmdstat_get:calls=100,usec=1,usec_per_call=1.00," +
	"rejected_calls=0,failed_calls=0\r\n" +
	"cmdstat_info:calls=3,usec=1\r\n"

const infoAfter = "# CPU\r\nused_cpu_sys:2.000000\r\nused_cpu_user:3.250000\r\n# " +
	"Stats\r\nkeyspace_misses:2\r\n# Commandstats\r\n" +
	"cmdstat_get:calls=1100,usec=9\r\ncmdstat_set:calls=7,usec=9\r\n" +
	"cmdstat_evalsha:calls=3,usec=9\r\ncmdstat_eval:calls=1,usec=9\r\n" +
	"cmdstat_info:calls=9,usec=1\r\n"

func TestUsage(t *testing.T) {
	got := parseUsage(infoAfter).minus(parseUsage(infoBefore))
	want := usage{scripts: 4, commands: 1011, gets: 1000, sets: 7, cpu: 1500 * time.Millisecond}
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if missed := parseUsage(infoBefore).misses; missed != 2 {
		t.Errorf("%d misses", missed)
	}
}

func TestSeenBy(t *testing.T) {
	get, set := workload{"GET", 50, 16, 64}, workload{"SET", 50, 16, 64}
	for _, c := range []struct {
		name string
		load workload
		used usage
		ok   bool
	}{
		{"all", get, usage{gets: 10000}, true},
		{"whole pipelines", get, usage{gets: 10800}, true},
		{"set", set, usage{sets: 10000}, true},
		{"lost", get, usage{gets: 9999}, false},
		{"answered by the proxy", set, usage{gets: 10000}, false},
		{"sent twice", get, usage{gets: 20000}, false},
		{"no value", get, usage{gets: 10000, misses: 1}, false},
	} {
		if err := c.load.seenBy(c.used, 10000); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
