package redisbench

import (
	"strings"
	"testing"
)

const header = `"test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms",` +
	`"p95_latency_ms","p99_latency_ms","max_latency_ms"` + "\n"

func TestParse(t *testing.T) {
	for name, c := range map[string]struct {
		out  string
		want Report
	}{
		"with latencies": {header +
			`"GET","555555.56","0.942","0.144","0.919","1.335","2.687","2.839"` + "\n",
			Report{Rate: 555555.56}},
		"as before Redis 7": {`"SET","1.00"` + "\n" + `"GET","41390.73"` + "\n",
			Report{Rate: 41390.73}},
		"columns in any order": {`"test","p99_latency_ms","rps"` + "\n" + `"GET","1","2"` + "\n",
			Report{Rate: 2}},
		"of a cluster": {"Cluster has 2 master nodes:\n\nMaster 0: 9a3b 127.0.0.1:7000\nMaster " +
			"1: 127.0.0.1:7001\n\n" + header + `"GET","7","0","0","1","0","2","0"` + "\n",
			Report{Rate: 7}},
		"more columns than now": {`"test","rps","new"` + "\n" + `"GET","7","not a number"` + "\n",
			Report{Rate: 7}},
	} {
		got, err := parse(c.out, "GET")
		if err != nil || got != c.want {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, c.want)
		}
	}
}

func TestArgs(t *testing.T) {
	l := Load{Addr: "127.0.0.1:1", Test: "GET", Clients: 50, Pipeline: 16, Size: 64, Requests: 1000}
	const usual = "--csv -t get -c 50 -P 16 -d 64 -n 1000"
	if got := strings.Join(l.args(), " "); got != usual {
		t.Errorf("%q", got)
	}
	l.Threads, l.Keys, l.Cluster = 3, 20000, true
	if got := strings.Join(l.args(), " "); got != usual+" --threads 3 -r 20000 --cluster" {
		t.Errorf("of a cluster: %q", got)
	}
}

func TestParseRefuses(t *testing.T) {
	for name, out := range map[string]string{
		"nothing":        "",
		"header alone":   header,
		"another test":   `"SET","41390.73"` + "\n",
		"half a row":     header + `"GET","555555.56"` + "\n",
		"no number":      `"GET","fast"` + "\n",
		"nothing done":   `"GET","0.00"` + "\n",
		"not a rate":     `"GET","nan"` + "\n",
		"no closed text": `"GET","1` + "\n",
	} {
		if got, err := parse(out, "GET"); err == nil {
			t.Errorf("%s: read as %+v", name, got)
		}
	}
}

func TestComplaint(t *testing.T) {
	for stderr, want := range map[string]string{
		"": "",
		"WARNING: Could not fetch server CONFIG\n": "",
		"WARN: could not fetch\n\nError from server: OOM command not allowed\nmore\n": "" +
			"Error from server: OOM command not allowed",
		"Error: Server closed the connection\n": "" +
			"Error: Server closed the connection",
		"WARNING: Could not fetch server CONFIG\nAll clients disconnected... aborting.": "" +
			"All clients disconnected... aborting.",
	} {
		if got := complaint(stderr); got != want {
			t.Errorf("%q: %q, want %q", stderr, got, want)
		}
	}
}
