package main

import (
	"os"
	"testing"
	"time"
)

const infoBefore = "# CPU\r\nused_cpu_sys:1.500000\r\nused_cpu_user:2.250000\r\n" +
	"used_cpu_sys_children:9.0\r\n\r\n# Stats\r\ntotal_connections_received:3\r\n" +
	"keyspace_hits:5\r\nkeyspace_misses:2\r\n\r\n# Commandstats\r\n" +
	"cmdstat_get:calls=100,usec=1,usec_per_call=1.00,rejected_calls=0,failed_calls=0\r\n" +
	"cmdstat_info:calls=3,usec=1\r\n"

const infoAfter = "# CPU\r\nused_cpu_sys:2.000000\r\nused_cpu_user:3.250000\r\n# Stats\r\n" +
	"total_connections_received:7\r\nkeyspace_hits:905\r\nkeyspace_misses:2\r\n# Commandstats\r\n" +
	"cmdstat_get:calls=1100,usec=9\r\ncmdstat_set:calls=7,usec=9\r\n" +
	"cmdstat_evalsha:calls=3,usec=9\r\ncmdstat_eval:calls=1,usec=9\r\n" +
	"cmdstat_info:calls=9,usec=1\r\n"

func TestUsage(t *testing.T) {
	before := parseUsage(infoBefore)
	want := usage{scripts: 4, commands: 1011, gets: 1000, sets: 7, found: 900,
		connections: 4, cpu: 1500 * time.Millisecond}
	if got := parseUsage(infoAfter).plus(before, -1); got != want {
		t.Errorf("%+v, want %+v", got, want)
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
		{"all", get, usage{gets: 10000, found: 10000}, true},
		{"whole pipelines", get, usage{gets: 10800, found: 10800}, true},
		{"with a read of a proxy that starts", get, usage{gets: 10001, found: 10000}, true},
		{"set", set, usage{sets: 10000}, true},
		{"lost", get, usage{gets: 9999, found: 9999}, false},
		{"answered by the proxy", set, usage{gets: 10000, found: 10000}, false},
		{"sent twice", get, usage{gets: 20000, found: 20000}, false},
		{"no value", get, usage{gets: 10000, found: 9999}, false},
	} {
		if err := c.load.seenBy(c.used, 10000); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestClusterFigures(t *testing.T) {
	get, set := workload{"GET", 50, 16, 64}, workload{"SET", 50, 16, 64}
	for _, c := range []struct {
		name string
		load workload
		used usage
		ok   bool
	}{
		{"get", get, usage{gets: 10000, found: 10000}, true},
		{"set", set, usage{sets: 10000}, true},
		{"few keys without a value", get, usage{gets: 10000, found: 9800}, true},
		{"many keys without a value", get, usage{gets: 10000, found: 9799}, false},
		{"answered by the proxy", set, usage{gets: 10000}, false},
	} {
		c.used.cpu = 2 * time.Second
		got, err := c.load.clusterFigures(viaLockproxy, c.used, time.Second, 500*time.Millisecond)
		switch {
		case (err == nil) != c.ok:
			t.Errorf("%s: %v", c.name, err)
		case c.ok && (got["requests/s"] != 20000 || got["Redis CPU"] != 200 ||
			got["proxy CPU"] != 100):
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestParseBenchmark(t *testing.T) {
	const header = `"test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms",` +
		`"p95_latency_ms","p99_latency_ms","max_latency_ms"` + "\n"
	for _, c := range []struct {
		name, out string
		ok        bool
	}{
		{"whole", header + `"GET","1000.50","0.1","0.1","0.25","0.3","0.5","9"` + "\n", true},
		{"with nodes", "Cluster has 3 nodes:\n\n" + header +
			`"GET","1000.50","0.1","0.1","0.25","0.3","0.5","9"` + "\n", true},
		{"cut", header + `"GET","1000.50","0.1"` + "\n", false},
		{"another test", header + `"SET","1000.5","0.1","0.1","0.2","0.3","0.4","9"` + "\n", false},
		{"no rate", header + `"GET","0.00","0.1","0.1","0.2","0.3","0.4","9"` + "\n", false},
		{"no number", header + `"GET","nan","0.1","0.1","0.2","0.3","0.4","9"` + "\n", false},
		{"nothing", "", false},
	} {
		f, err := parseBenchmark(c.out, "GET")
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
		if c.ok && (f["requests/s"] != 1000.5 || f["p50 ms"] != 0.25 || f["p99 ms"] != 0.5) {
			t.Errorf("%s: %v", c.name, f)
		}
	}
	if got := complaint("\nWARNING: Could not fetch server CONFIG\n"); got != "" {
		t.Errorf("a remark is taken for a complaint: %q", got)
	}
	if got := complaint("WARN x\nError from server: ERR no\n"); got != "Error from server: ERR no" {
		t.Errorf("a complaint is not seen: %q", got)
	}
}

func TestParseCPU(t *testing.T) {
	stat := "4711 (a (strange) name) S 1 4711 4711 0 -1 4194560 1000 0 0 0 150 27 0 0 20 0 9 0 " +
		"100 1000000 500 18446744073709551615\n"
	got, err := parseCPU(stat)
	if err != nil || got != 1770*time.Millisecond {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"", "1 (x) S 1 2",
		"1 (x) S 1 4711 4711 0 -1 4194560 1000 0 0 0 many 27 0"} {
		if got, err := parseCPU(bad); err == nil {
			t.Errorf("%q was read as %v", bad, got)
		}
	}
}

func TestProcess(t *testing.T) {
	p := process(os.Getpid())
	if resident, err := p.resident(); err != nil || resident < 1<<20 {
		t.Errorf("%d bytes resident: %v", resident, err)
	}
	for { // ends once its work has used some
		if used, err := p.cpu(); err != nil {
			t.Fatal(err)
		} else if used > 0 {
			return
		}
	}
}

func TestParseMachineCPU(t *testing.T) {
	for stat, want := range map[string]time.Duration{
		"cpu  100 20 3 9999 50 60 70 4 0 0\ncpu0 1 1 1 1\n": 1270 * time.Millisecond,
		"intr 1 2 3\n": 0,
		"":             0,
	} {
		if got := parseMachineCPU(stat); got != want {
			t.Errorf("%q: %v, want %v", stat, got, want)
		}
	}
}
