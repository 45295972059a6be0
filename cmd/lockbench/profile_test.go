package main

import (
	"math"
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
		sampled(40, call, "lockproxy/internal/socket.call", "lockproxy/passthrough.(*outbox).send",
			"lockproxy/passthrough.(*Pipe).passShared", "lockproxy/passthrough.(*lane).pass"),
		sampled(10, call, "lockproxy/internal/socket.call", "lockproxy/proxy.(*session).read",
			"lockproxy/proxy.(*session).serve"),
		sampled(5, "lockproxy/internal/resp.(*Framer).Next", "lockproxy/proxy.(*session).handle",
			"lockproxy/proxy.(*session).serve"),
		sampled(5, call, "lockproxy/passthrough.(*lane).submit",
			"lockproxy/passthrough.(*Pipe).Call", "lockproxy/proxy.(*session).Eval"),
		sampled(10, "lockproxy/passthrough.(*replyReader).sort",
			"lockproxy/passthrough.(*Pipe).passShared", "lockproxy/passthrough.(*lane).pass"),
		sampled(15, "runtime.epollwait", "runtime.netpoll", "runtime.findRunnable",
			"runtime.schedule", "runtime.mcall"),
		sampled(5, "runtime.gcDrainN", "runtime.gcAssistAlloc1", "runtime.gcAssistAlloc",
			"lockproxy/lockcmd.(*Locks).Run", "lockproxy/proxy.(*session).serve"),
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
