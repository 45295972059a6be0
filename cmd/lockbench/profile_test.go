package main

import (
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/pprof/profile"
)

// sampled is a sample of a stack, the innermost function first.
func sampled(value int64, stack ...string) *profile.Sample {
	s := &profile.Sample{Value: []int64{1, value}}
	for _, name := range stack {
		line := profile.Line{Function: &profile.Function{Name: name}}
		s.Location = append(s.Location, &profile.Location{Line: []profile.Line{line}})
	}
	return s
}

func TestBreakDown(t *testing.T) {
	const call = "internal/runtime/syscall/linux.Syscall6"
	b := breakDown(&profile.Profile{Sample: []*profile.Sample{
		sampled(40, call, "lockproxy/internal/socket.call",
			"lockproxy/passthrough.(*clientWriter).write", "lockproxy/passthrough.(*lane).consume"),
		sampled(10, call, "lockproxy/internal/socket.call", "lockproxy/proxy.(*session).Ready",
			"lockproxy/internal/eventloop.(*loop).run"),
		sampled(5, "lockproxy/internal/resp.(*Framer).Next",
			"lockproxy/proxy.(*dispatcher).relayBatch", "lockproxy/proxy.(*session).Ready"),
		sampled(5, call, "lockproxy/passthrough.(*lane).write",
			"lockproxy/passthrough.(*lane).Flush", "lockproxy/internal/eventloop.(*loop).run"),
		sampled(10, "lockproxy/passthrough.(*demux).cut", "lockproxy/passthrough.(*lane).consume"),
		sampled(15, "runtime.epollwait", "runtime.netpoll", "runtime.findRunnable",
			"runtime.schedule", "runtime.mcall"),
		sampled(5, "runtime.gcDrainN", "runtime.gcAssistAlloc1", "runtime.gcAssistAlloc",
			"lockproxy/lockcmd.(*Locks).Begin", "lockproxy/proxy.(*session).serve"),
		sampled(10, "something.else"),
	}})
	for a, want := range map[activity]float64{
		toClients: 0.4, fromClients: 0.1, withRequests: 0.05, toRedis: 0.05, withReplies: 0.1,
		scheduling: 0.15, collecting: 0.05, otherwise: 0.1,
	} {
		if math.Abs(b.shares[a]-want) > 1e-9 {
			t.Errorf("%s: %v, want %v", activityNames[a], b.shares[a], want)
		}
	}
	if math.Abs(b.calls-0.7) > 1e-9 {
		t.Errorf("in system calls: %v", b.calls)
	}
	if empty := breakDown(&profile.Profile{}); empty.calls != 0 || empty.shares[toClients] != 0 {
		t.Errorf("of nothing: %+v", empty)
	}
}

// A function that gets another name would count as something else.
func TestActivitiesAreOfFunctionsThatExist(t *testing.T) {
	for _, known := range activityOf {
		path, ok := strings.CutPrefix(known.function, "lockproxy/")
		dir, name, method := strings.Cut(path, ".(*")
		if !ok || !method {
			continue
		}
		receiver, function, _ := strings.Cut(name, ").")
		want := regexp.MustCompile(`\nfunc \(\w+ \*` + strings.TrimSuffix(receiver, ")") + `\) ` +
			function)
		files, err := filepath.Glob("../../" + dir + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(files, func(file string) bool {
			source, err := os.ReadFile(file)
			return err == nil && want.Match(source)
		}) {
			t.Errorf("there is no %s", known.function)
		}
	}
}

func TestProfileTable(t *testing.T) {
	j := profilePart(true).jobs[0].(*profiled)
	for i := range j.results {
		j.results[i] = []*breakdown{{perRequest: 1500 * time.Nanosecond, calls: 0.75}}
		j.results[i][0].shares[toClients] = 0.5
	}
	got := j.sections()[0].markdown("")
	for _, want := range []string{
		"|  | CPU µs/request | writing to clients | reading from clients | writing to Redis | " +
			"replies | requests | scheduler | GC | other | in system calls |\n",
		"| GET, 50 clients, P=16, 64 B | 1.50 | 50 | 0 | 0 | 0 | 0 | 0 | 0 | 0 | 75 |\n",
		"| LOCK and UNLOCK, 50 clients with a lock each | 1.50 | 50 |",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}
