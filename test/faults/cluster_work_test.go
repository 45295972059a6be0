//go:build faults && linux

package faults_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"lockproxy/internal/faults/check"
	"lockproxy/internal/faults/client"
	"lockproxy/internal/faults/history"
	"lockproxy/internal/proxytest"
)

// clusterWork is clients that compete for locks, and others whose commands have one right answer,
// through proxies in front of one cluster. All that they see goes into a history.
type clusterWork struct {
	t       *testing.T
	name    string
	targets []client.Target
	keys    []string
	notes   history.Recorder
	askers  []*client.Asker
	stopAll context.CancelFunc
	running sync.WaitGroup

	mu     sync.Mutex
	faults []history.Fault // guarded by mu
}

// startClusterWork works at locks named by name. Each has a
// hash tag, so that a fenced write goes to its slot.
func startClusterWork(t *testing.T, name string, proxies ...*proxytest.Proxy) *clusterWork {
	w := &clusterWork{t: t, name: name}
	for i, p := range proxies {
		w.targets = append(w.targets, client.Target{Proxy: i, Addr: p.Addr})
	}
	pairs := map[string]string{}
	for i := range 4 {
		w.keys = append(w.keys, fmt.Sprintf("{%s-%d}", name, i))
	}
	for _, key := range w.keys[:2] {
		other := "with:" + key // in the same slot
		pairs[key], pairs[other] = other, key
		w.keys = append(w.keys, other)
	}
	ctx, stop := context.WithCancel(context.Background())
	w.stopAll = stop
	t.Cleanup(func() { stop(); w.running.Wait() })
	seed := uint64(len(name))
	for i := range 8 {
		l := &client.Locker{ID: i, Targets: w.targets, Keys: w.keys,
			Random: rand.New(rand.NewPCG(seed, uint64(i))), Notes: &w.notes,
			Think: 40 * time.Millisecond, Shortest: 300 * time.Millisecond, Longest: time.Second,
			Sessions: 30, Shared: 50 * (i % 2), Pairs: pairs}
		w.running.Go(func() { l.Run(ctx) }) // ends with ctx; end and the test wait for it
	}
	for i := range 4 {
		a := &client.Asker{ID: 1000 + i, Name: fmt.Sprintf("%s:asker:%d", name, i),
			Targets: w.targets, Users: []string{""}, OneDatabase: true,
			Random: rand.New(rand.NewPCG(seed, uint64(1000+i))), Notes: &w.notes,
			Think: 40 * time.Millisecond, Big: 20_000}
		w.askers = append(w.askers, a)
		w.running.Go(func() { a.Run(ctx) }) // ends with ctx; end and the test wait for it
	}
	return w
}

// during records a fault of the cluster.
func (w *clusterWork) during(kind string, from, to int64, breaks history.Breaks) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults = append(w.faults, history.Fault{Kind: kind, From: from, To: to, Breaks: breaks})
}

// end stops the clients, asks for every lock and every
// written value once more, and judges what was seen.
func (w *clusterWork) end() clusterVerdict {
	w.t.Helper()
	w.stopAll()
	w.running.Wait()
	var probing sync.WaitGroup
	for _, key := range w.keys {
		for i, at := range w.targets {
			probing.Go(func() { client.Probe(&w.notes, 5000+i, at, key, 8*time.Second) })
		}
	}
	probing.Wait()
	for _, a := range w.askers {
		if err := a.Find(&w.notes, w.targets[0].Addr, "", 0); err != nil {
			w.t.Errorf("%s: cannot read the lists of an asker: %v", w.name, err)
		}
	}
	h := history.History{Ops: w.notes.Drain(), Faults: w.faults}
	return clusterVerdict{h: h, report: check.Check(h, check.DefaultBounds())}
}

// clusterVerdict is the outcome of a clusterWork.
type clusterVerdict struct {
	h      history.History
	report check.Report
}

// count is how often each rule was broken.
func (v clusterVerdict) count() map[string]int {
	n := map[string]int{}
	for _, violation := range v.report.Violations {
		n[violation.Rule]++
	}
	return n
}

// broken are the violations of some rules.
func (v clusterVerdict) broken(rules ...string) (list []string) {
	for _, violation := range v.report.Violations {
		if slices.Contains(rules, violation.Rule) {
			text := violation.String()
			if len(violation.Ops) < 6 {
				for _, o := range violation.Ops {
					text += "\n    " + v.line(o)
				}
			}
			if violation.Rule == "answer" && len(violation.Ops) == 1 {
				text += v.around(violation.Ops[0])
			}
			list = append(list, text)
		}
	}
	return list
}

func (v clusterVerdict) line(o history.Op) string {
	return fmt.Sprintf("at %s to %s: client %d at proxy %d: %s %s token %d: %s %d %s",
		v.since(o.Call), v.since(o.Return),
		o.Client, o.Proxy, o.Kind, o.Key, o.Token, o.Outcome, o.Result, shortened(o.Got))
}

// around is what the client of an operation asked in the
// second before it, and right after it: its pipeline.
func (v clusterVerdict) around(wrong history.Op) string {
	var text strings.Builder
	for _, o := range v.h.Ops {
		if o.Client == wrong.Client && o.Call > wrong.Call-int64(time.Second) &&
			o.Call < wrong.Call+int64(10*time.Millisecond) {
			fmt.Fprintf(&text, "\n      its client, %s; wanted %s", v.line(o), shortened(o.Want))
		}
	}
	return text.String()
}

func (v clusterVerdict) since(at int64) string { return history.Seconds(at, v.h.Ops[0].Call) }

// timeline is the times of the cluster's faults.
func (v clusterVerdict) timeline() string {
	var text strings.Builder
	for _, f := range v.h.Faults {
		fmt.Fprintf(&text, "\n    %s to %s: %s", v.since(f.From), v.since(f.To), f.Kind)
	}
	return text.String()
}

// String is the figures that docs/cluster-locks.md reports.
func (v clusterVerdict) String() string {
	outcomes, acquired, refusals := map[string]int{}, 0, map[string]int{}
	kinds := v.taken()
	for _, o := range v.h.Ops {
		if o.Acquired() {
			acquired++
		}
		switch {
		case o.Kind == history.Lost || o.HungUp:
			continue
		case o.Outcome == history.Refused && strings.Contains(o.Got, "nothing was sent"):
			outcomes["not sent"]++
		case o.Outcome == history.Unknown && (o.Got == "lost with what was before it" ||
			o.Got == "what was before it was refused"):
			continue // its client has hung up
		case o.Outcome == history.Unknown:
			outcomes["unknown"]++
		case o.Outcome == history.Refused:
			outcomes["refused"]++
			code, _, _ := strings.Cut(o.Got, " ")
			refusals[code]++
		}
	}
	return fmt.Sprintf(
		"%d operations, %d locks taken %v, %d acknowledged writes lost; %d of unknown outcome, "+
			"%d not sent, %d refused %v; violations %v; rules applied %v", len(v.h.Ops), acquired,
		sortedCounts(kinds), v.lostWrites(),
		outcomes["unknown"], outcomes["not sent"], outcomes["refused"], sortedCounts(refusals),
		sortedCounts(v.count()), sortedCounts(v.report.Checked))
}

// taken is how many locks of each kind were taken.
func (v clusterVerdict) taken() map[string]int {
	n := map[string]int{"exclusive": 0, "SHARED": 0, "LIMIT": 0, "LOCKALL": 0}
	for _, o := range v.h.Ops {
		switch {
		case !o.Acquired() || o.Kind == history.Probe:
		case o.With != "":
			n["LOCKALL"]++
		case o.Limit > 0:
			n["LIMIT"]++
		case o.Shared:
			n["SHARED"]++
		default:
			n["exclusive"]++
		}
	}
	return n
}

// lostWrites is how many acknowledged writes are missing.
func (v clusterVerdict) lostWrites() (lost int) {
	there := map[string]bool{}
	for _, o := range v.h.Ops {
		if o.Kind == history.List && o.Outcome == history.OK {
			for value := range strings.FieldsSeq(o.Got) {
				there[value] = true
			}
		}
	}
	for _, o := range v.h.Ops {
		if o.Kind == history.Push && o.Outcome == history.OK && !there[o.Value] {
			lost++
		}
	}
	return lost
}

func sortedCounts(counts map[string]int) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%s %d", name, counts[name]))
	}
	return "(" + strings.Join(parts, ", ") + ")"
}

func shortened(text string) string {
	if len(text) > 120 {
		return text[max(0, len(text)-150):] + " ..."
	}
	return text
}
