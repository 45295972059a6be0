package redisbench

import (
	"testing"
	"time"
)

const header = `"test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_latency_ms","p99_latency_ms","max_latency_ms"` + "\n"

func TestParse(t *testing.T) {
	for name, c := range map[string]struct {
		out  string
		want Report
	}{
		"with latencies": {header + `"GET","555555.56","0.942","0.144","0.919","1.335","2.687","2.839"` + "\n",
			Report{Rate: 555555.56, P50: 919 * time.Microsecond, P99: 2687 * time.Microsecond}},
		"as before Redis 7":     {`"SET","1.00"` + "\n" + `"GET","41390.73"` + "\n", Report{Rate: 41390.73}},
		"columns in any order":  {`"test","p99_latency_ms","rps"` + "\n" + `"GET","1","2"` + "\n", Report{Rate: 2, P99: time.Millisecond}},
		"more columns than now": {`"test","rps","new"` + "\n" + `"GET","7","not a number"` + "\n", Report{Rate: 7}},
	} {
		got, err := parse(c.out, "GET")
		if err != nil || got != c.want {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, c.want)
		}
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
		"WARNING: Could not fetch server CONFIG\n":                                      "",
		"WARN: could not fetch\n\nError from server: OOM command not allowed\nmore\n":   "Error from server: OOM command not allowed",
		"Error: Server closed the connection\n":                                         "Error: Server closed the connection",
		"WARNING: Could not fetch server CONFIG\nAll clients disconnected... aborting.": "All clients disconnected... aborting.",
	} {
		if got := complaint(stderr); got != want {
			t.Errorf("%q: %q, want %q", stderr, got, want)
		}
	}
}
