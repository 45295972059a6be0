//go:build faults

package faults_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	processes "lockproxy/internal/test/faults/process"
	"lockproxy/internal/test/faults/soak"
	"lockproxy/internal/test/proxytest"
)

// programs are built once, with the race detector, where the next run finds them.
var programs = sync.OnceValues(func() (p soak.Programs, err error) {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("lockproxy-faults-%d", os.Getuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return p, err
	}
	return soak.BuildPrograms(proxytest.Ctx, dir)
})

func builtPrograms(t *testing.T) soak.Programs {
	t.Helper()
	p, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Each fault by itself, again and again while clients work:
// the promises of docs/guarantees.md hold.
func TestFault(t *testing.T) {
	t.Parallel()
	builtPrograms(t)
	for _, kind := range soak.Kinds() {
		keeps := []processes.Persistence{processes.Always}
		if kind == "power cut" { // appendfsync no loses what lies between the last two
			keeps = []processes.Persistence{processes.Always, processes.Everysec, processes.None}
		}
		for _, persistence := range keeps {
			name := kind
			if len(keeps) > 1 {
				name += ", appendfsync " + string(persistence)
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				underFault(t, soak.Plan{Persistence: persistence, Faults: repeated(kind)})
			})
		}
	}
}

// repeated is a fault in its different ways, to one proxy, link or client and then another.
func repeated(kind string) []soak.Fault {
	var faults []soak.Fault
	for i := range 4 {
		faults = append(faults,
			soak.Fault{Kind: kind, At: time.Duration(400+i*650) * time.Millisecond,
				For: 400 * time.Millisecond, Target: i % 2, Amount: i})
	}
	return faults
}

func underFault(t *testing.T, p soak.Plan) {
	bench, err := soak.NewBench(proxytest.Ctx, t.TempDir(), builtPrograms(t), 1, p.NeedsMachine())
	if err != nil {
		t.Fatal(err)
	}
	defer bench.Close()
	p.Seed, p.Active, p.Quiet = 1, 3000*time.Millisecond, 1300*time.Millisecond
	load := soak.DefaultLoad()
	load.Lockers, load.Sharers, load.Askers, load.Think = 10, 5, 3, 60*time.Millisecond
	r, err := bench.Run(proxytest.Ctx, p, load)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Report.Violations) > 0 {
		t.Error(r.Describe())
	}
	acquired := 0
	for _, o := range r.History.Ops {
		if o.Acquired() {
			acquired++
		}
	}
	if len(r.History.Faults) < len(p.Faults) || acquired < 10 {
		t.Errorf("%d faults, %d locks taken: too little to say anything", len(r.History.Faults),
			acquired)
	}
	t.Logf("%d operations, %d locks taken, %d faults; checked %v", len(r.History.Ops), acquired,
		len(r.History.Faults), r.Report.Checked)
}
