package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/google/pprof/profile"
)

// profiled is what lockproxy does with its processor time in some workloads: it explains what the
// others measure.
type profiled struct {
	time      time.Duration // of a profile, whole seconds
	workloads []workload
	results   [][]*breakdown // of each workload, and at last of locks, by round
}

// breakdown is one profile.
type breakdown struct {
	perRequest time.Duration // of the processor
	shares     [activities]float64
	calls      float64 // share that the kernel had, in system calls
}

// activity is something that lockproxy does.
type activity int

const (
	toClients activity = iota
	fromClients
	toRedis
	withReplies
	withRequests
	scheduling
	collecting
	otherwise
	activities
)

var activityNames = [activities]string{"writing to clients", "reading from clients",
	"writing to Redis", "replies", "requests", "scheduler", "GC", "other"}

// activityOf says of functions, by how their names begin, what calls of theirs are for. Of a stack
// the innermost that is named here counts, and of two that fit it the first.
var activityOf = []struct {
	function string
	activity activity
}{
	{"runtime.gcBgMarkWorker", collecting},
	{"runtime.gcAssistAlloc", collecting},
	{"runtime.bgsweep", collecting},
	{"runtime.bgscavenge", collecting},
	{"runtime.mcall", scheduling},
	{"runtime.schedule", scheduling},
	{"runtime.findRunnable", scheduling},
	{"runtime.sysmon", scheduling},
	{"runtime.mstart", scheduling},
	{"lockproxy/internal/eventloop.", scheduling},
	{"lockproxy/passthrough.(*clientWriter)", toClients},
	{"lockproxy/proxy.(*session).Ready", fromClients},
	{"lockproxy/proxy.(*input).read", fromClients},
	{"lockproxy/passthrough.(*lane).write", toRedis},
	{"lockproxy/passthrough.(*homeSide).writeHome", toRedis},
	{"lockproxy/passthrough.(*connReader)", withReplies},
	{"lockproxy/passthrough.(*demux)", withReplies},
	{"lockproxy/passthrough.(*home).consume", withReplies},
	{"lockproxy/passthrough.(*lane).consume", withReplies},
	{"lockproxy/passthrough.", withRequests},
	{"lockproxy/proxy.", withRequests},
	{"lockproxy/lockcmd.", withRequests},
}

func profilePart(quick bool) *part {
	j := &profiled{time: 3 * time.Second, workloads: []workload{
		{"GET", usualClients, 1, usualSize}, {"GET", usualClients, 16, usualSize},
		{"GET", usualClients, 64, usualSize},
		{"GET", usualClients, 1, 64 << 10}, {"SET", usualClients, 1, 64 << 10},
		{"GET", 1, 1, usualSize}, {"GET", 1000, 1, usualSize},
	}}
	if quick {
		j.time = time.Second
	}
	j.results = make([][]*breakdown, len(j.workloads)+1)
	return &part{rounds: 1, needs: needs{targets: []string{viaDirect, viaLockproxy},
		profiled: true}, jobs: []job{j}}
}

func (j *profiled) title() string { return "Profile" }

func (j *profiled) cases() (names []string) {
	for _, w := range j.workloads {
		names = append(names, w.String())
	}
	return append(names, fmt.Sprintf("LOCK and UNLOCK, %s with a lock each",
		count(pairClients, "client")))
}

// lead is how long a workload runs before it is profiled.
const lead = 200 * time.Millisecond

func (j *profiled) measure(b *bench, i int) error {
	run := j.locks
	if i < len(j.workloads) {
		w := j.workloads[i]
		n, err := b.calibrate(w, j.time*3/2+2*lead) // lockproxy can be faster than Redis alone
		if err != nil {
			return fmt.Errorf("cannot tell how many requests to send: %w", err)
		}
		run = func(b *bench) (int, error) {
			_, err := b.benchmark(b.targets[1], w, n)
			return n, err
		}
	}
	result, err := b.profile(j.time, run)
	if err == nil {
		j.results[i] = append(j.results[i], result)
	}
	return err
}

func (j *profiled) locks(b *bench) (requests int, err error) {
	d := j.time + 2*lead
	o, err := lockRaw(pairsLockproxy, 1, false).run(b, pairClients, d+stallAfter, drive{time: d})
	if err != nil {
		return 0, err
	}
	return 2 * o.total, nil
}

// profile runs something and looks meanwhile at what lockproxy does.
func (b *bench) profile(d time.Duration, run func(*bench) (requests int, err error)) (*breakdown,
	error) {
	type fetched struct {
		p   *profile.Profile
		err error
	}
	ctx, cancel := context.WithTimeout(b.ctx, d+10*time.Second)
	defer cancel()
	result := make(chan fetched, 1)
	go func() { // ends with the profile, or with ctx; it is waited for below
		time.Sleep(lead)
		p, err := fetchProfile(ctx, b.profiles, d)
		result <- fetched{p, err}
	}()
	proxy := b.targets[1].server.process()
	before, err := proxy.cpu()
	requests := 0
	if err == nil {
		requests, err = run(b)
	}
	after, cpuErr := proxy.cpu()
	if err != nil {
		cancel()
	}
	got := <-result
	switch {
	case err != nil:
		return nil, err
	case cpuErr != nil:
		return nil, cpuErr
	case got.err != nil:
		return nil, got.err
	}
	sum := breakDown(got.p)
	sum.perRequest = (after - before) / time.Duration(max(requests, 1))
	return sum, nil
}

// fetchProfile asks a lockproxy that was started with --admin-pprof what it does for d, whole
// seconds.
func fetchProfile(ctx context.Context, admin string, d time.Duration) (*profile.Profile, error) {
	url := fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", admin, int(d.Seconds()))
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	reply, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("cannot have lockproxy's profile: %w", err)
	}
	defer reply.Body.Close()
	if reply.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("cannot have lockproxy's profile: %s says %s", url, reply.Status)
	}
	p, err := profile.Parse(reply.Body)
	if err != nil {
		return nil, fmt.Errorf("cannot read lockproxy's profile: %w", err)
	}
	return p, nil
}

// breakDown adds a profile up. One without samples has no shares.
func breakDown(p *profile.Profile) *breakdown {
	sum, all := &breakdown{}, 0.0
	for _, s := range p.Sample {
		value := float64(s.Value[len(s.Value)-1])
		stack := functions(s)
		all += value
		sum.shares[activityIn(stack)] += value
		if len(stack) > 0 && isSystemCall(stack[0]) {
			sum.calls += value
		}
	}
	if all > 0 {
		for i := range sum.shares {
			sum.shares[i] /= all
		}
		sum.calls /= all
	}
	return sum
}

// functions are those of a stack, the innermost first.
func functions(s *profile.Sample) (names []string) {
	for _, location := range s.Location {
		for _, line := range location.Line {
			if line.Function != nil {
				names = append(names, line.Function.Name)
			}
		}
	}
	return names
}

func activityIn(stack []string) activity {
	for _, name := range stack {
		for _, known := range activityOf {
			if strings.HasPrefix(name, known.function) {
				return known.activity
			}
		}
	}
	return otherwise
}

func isSystemCall(function string) bool {
	switch function {
	case "runtime.futex", "runtime.usleep", "runtime.epollwait":
		return true
	}
	return strings.HasSuffix(function, "yscall6") || strings.HasPrefix(function, "syscall.")
}
