//go:build faults && linux

package faults_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"lockproxy/internal/test/faults/check"
	"lockproxy/internal/test/faults/client"
	"lockproxy/internal/test/faults/history"
	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testwait"
)

// work is clients that compete for locks, and others whose commands have one right answer,
// through proxies in front of one upstream. All that they see goes into a history.
type work struct {
	t       *testing.T
	name    string
	targets []client.Target
	keys    []string
	notes   history.Recorder
	askers  []*client.Asker
	stopAll context.CancelFunc
	running sync.WaitGroup

	faults       []history.Fault
	replacements []replacement
}

// replacement is from when to when a master was being replaced.
type replacement struct{ from, to int64 }

// startWork works at locks named by name. Each has a
// hash tag, so that a fenced write goes to its slot.
func startWork(t *testing.T, name string, seed uint64, proxies ...*proxytest.Proxy) *work {
	w := &work{t: t, name: name}
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

// goOn returns when the clients have taken n locks more.
func (w *work) goOn(t *testing.T, n int64) {
	t.Helper()
	enough := w.notes.Taken() + n
	testwait.Until(t, w.name+": clients take locks",
		func() bool { return w.notes.Taken() >= enough })
}

// during records a fault of the upstream.
func (w *work) during(kind string, from, to int64, breaks history.Breaks) {
	w.faults = append(w.faults, history.Fault{Kind: kind, From: from, To: to, Breaks: breaks})
}

// end stops the clients, asks for every lock and every
// written value once more, and judges what was seen.
func (w *work) end() verdict {
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
	report := check.Check(h, check.DefaultBounds())
	report.Violations = append(report.Violations, hangs(h, w.replacements)...)
	report.Violations = append(report.Violations, refusals(h)...)
	return verdict{h: h, report: report}
}
