package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// suite is one thing that lockbench measures.
type suite struct {
	name, title, about string
	rounds             int
	others             bool // it needs HAProxy or twemproxy
	needs              needs
	base               string // the way that the others are compared with; "" if there is none
	columns            []column
	// cases is called once the proxies are known. The cases of a workload follow each other.
	cases func(l *lab) []benchCase
}

// column is a figure that is shown.
type column struct {
	name   string
	verb   string
	ratios bool // to the base in the same round, next to the figure
}

// benchCase is a workload by one way.
type benchCase struct {
	workload, way string
	measure       func(b *bench) (figures, error)
}

// figures are the results of a run, by the names of columns. Figures without a column are only in
// the CSV.
type figures map[string]float64

// result is the figures of a case in one round, or the error of the run.
type result struct {
	round         int
	workload, way string
	figures       figures
	err           error
}

// allSuites are in the order in which the help lists them.
var allSuites = []func(quick bool) *suite{relaySuite, visitsSuite, idleSuite, clusterSuite,
	pairsSuite, hotSuite, waitingSuite}

func suiteNames() (names []string) {
	for _, s := range allSuites {
		names = append(names, s(false).name)
	}
	return append(names, "all")
}

func suitesNamed(names []string, quick bool) (list []*suite) {
	for _, s := range allSuites {
		if s := s(quick); slices.Contains(names, s.name) || slices.Contains(names, "all") {
			list = append(list, s)
		}
	}
	return list
}

// lab is what the suites of one run of lockbench share.
type lab struct {
	ctx      context.Context
	log      io.Writer
	dir      string        // of the servers' files
	proxies  []proxyBinary // to measure
	args     []string      // of each
	files    int           // how many files each process may have open
	versions versions
	watch    watch
}

// report measures the suites and writes their figures. The report names runs that fail, and report
// returns an error if there are any.
func report(ctx context.Context, f *flags, suites []*suite, stdout, log io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "lockbench")
	if err != nil {
		return fmt.Errorf("cannot make a directory for the servers: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	l := &lab{ctx: ctx, log: log, dir: dir, files: raiseFileLimit(), proxies: f.Proxy,
		args: strings.Fields(f.ProxyArgs), watch: startWatch()}
	if slices.ContainsFunc(suites, func(s *suite) bool { return s.others }) {
		if err := install(ctx); err != nil {
			return err
		}
	}
	if err := l.findProxies(); err != nil {
		return err
	}
	results := make([][]result, len(suites))
	for i, s := range suites {
		if f.Rounds > 0 {
			s.rounds = f.Rounds
		}
		if results[i], err = l.measure(s, f.Only); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	if f.Page != "" {
		if err := l.writePage(f.Page, suites, results); err != nil {
			return err
		}
	}
	return l.write(suites, results, f.Output, stdout)
}

// write prints the report, and writes it to a file with its figures next to it.
func (l *lab) write(suites []*suite, results [][]result, output string, stdout io.Writer) error {
	text := l.head()
	failed := 0
	var rows strings.Builder
	rows.WriteString("suite,workload,way,round,figure,value\n")
	for i, s := range suites {
		text += s.markdown(results[i])
		rows.WriteString(s.csv(results[i]))
		for _, r := range results[i] {
			if r.err != nil {
				failed++
			}
		}
	}
	if _, err := io.WriteString(stdout, text); err != nil {
		return err
	}
	if output != "" {
		base := strings.TrimSuffix(output, filepath.Ext(output))
		if err := errors.Join(os.WriteFile(output, []byte(text), 0o644),
			os.WriteFile(base+".csv", []byte(rows.String()), 0o644)); err != nil {
			return fmt.Errorf("cannot write the report: %w", err)
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d runs failed: see the report", failed)
	}
	return nil
}

// measure runs all cases of a suite, interleaved. An error ends the report.
func (l *lab) measure(s *suite, only string) (results []result, err error) {
	b, err := l.open(s.needs)
	if err != nil {
		return nil, err
	}
	defer b.close()
	cases := slices.DeleteFunc(s.cases(l), func(c benchCase) bool {
		return !strings.Contains(c.workload, only)
	})
	for round := range s.rounds {
		for _, i := range turns(cases, round) {
			c := cases[i]
			fmt.Fprintf(l.log, "%s, round %d of %d: %s, %s\n", s.name, round+1, s.rounds,
				c.workload, c.way)
			r := result{round: round, workload: c.workload, way: c.way}
			if err := b.empty(); err != nil {
				return nil, err
			}
			r.figures, r.err = c.measure(b)
			if l.ctx.Err() != nil {
				return nil, context.Cause(l.ctx)
			}
			if r.err != nil {
				fmt.Fprintf(l.log, "FAILED: %v\n", r.err)
				if err := b.restart(); err != nil {
					return nil, err
				}
			}
			results = append(results, r)
		}
	}
	return results, nil
}

// turns is the order of the cases in a round. Every round begins with another workload, and each
// workload with another way, so that no case always follows the same one.
func turns(cases []benchCase, round int) (order []int) {
	var groups [][]int
	for i, c := range cases {
		if i == 0 || cases[i-1].workload != c.workload {
			groups = append(groups, nil)
		}
		last := len(groups) - 1
		groups[last] = append(groups[last], i)
	}
	for g := range groups {
		group := groups[(g+round)%len(groups)]
		for k := range group {
			order = append(order, group[(k+round)%len(group)])
		}
	}
	return order
}

// failedRun stands for a figure of a round that failed.
var failedRun = math.NaN()
