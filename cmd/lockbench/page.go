package main

import (
	_ "embed"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"text/template"
	"time"
)

// pageText is docs/bench.md without its figures.
//
//go:embed page.md.tmpl
var pageText string

// page is a run as docs/bench.md shows it: a choice of the figures of all suites.
type page struct {
	Date, Machine, Programs string
	suites                  []*suite
	results                 [][]result
}

// cell names a figure of the page. A part of its name is enough to name a workload.
type cell struct {
	workload, way, figure string
	ratio                 bool // to the way that the suite compares with
}

// part is a row or a column. The cell of a row fills what that of a column leaves empty.
type part struct {
	name string
	cell
}

// pageTable is a table of one suite.
type pageTable struct {
	suite         string
	columns, rows []part
}

var pageTables = map[string]pageTable{
	"requests": {"relay", ratesBy(viaLockproxy, viaHAProxy, viaTwemproxy), workloads(
		"GET, 1 client, P=1, 64 B", "GET, 50 clients, P=1, 64 B", "GET, 50 clients, P=16, 64 B",
		"SET, 50 clients, P=16, 64 B", "GET, 50 clients, P=1, 65536 B",
		"GET, 1,000 clients, P=1, 64 B")},
	"costs": {"relay", byWays(viaDirect, viaLockproxy, viaHAProxy, viaTwemproxy), []part{
		{"GET, 1 client: p50, ms", cell{workload: "GET, 1 client, P=1, 64", figure: "p50 ms"}},
		{"GET, 1 client: p99, ms", cell{workload: "GET, 1 client, P=1, 64", figure: "p99 ms"}},
		{"processor time, Redis and proxy, µs", cell{workload: "GET, 1 client, P=1, 64",
			figure: "Redis CPU + proxy CPU"}},
		{"the same, 5,000 clients", cell{workload: "GET, 5,000 clients",
			figure: "Redis CPU + proxy CPU"}}}},
	"visits": {"visits", byWays(viaDirect, viaLockproxy, viaHAProxy), []part{
		{"200 clients, visits/s", cell{workload: "no login, 200 clients", figure: "visits/s"}},
		{"the same with AUTH", cell{workload: "AUTH, 200 clients", figure: "visits/s"}},
		{"the same with TLS to Redis", cell{workload: "TLS to Redis, 200 clients",
			figure: "visits/s"}}}},
	"cluster": {"cluster", ratesBy(viaLockproxy, viaTwemproxy), workloads("GET, 50 clients, P=1,",
		"GET, 50 clients, P=16,")},
	"pairs": {"pairs", figuresOf("50 clients", "pairs/s", "pairs/s ÷", "LOCK p99 ms"), []part{
		{"LOCK and UNLOCK, go-redis", cell{way: "lockproxy: LOCK, go-redis"}},
		{"LOCK and UNLOCK, rueidis, one client for all", cell{way: "lockproxy: LOCK, rueidis"}},
		{"bsm/redislock (go-redis), directly", cell{way: bsmDirect}},
		{"bsm/redislock through HAProxy", cell{way: "bsm/redislock through HAProxy"}},
		{"rueidislock, directly", cell{way: rueidisDirect}}}},
	"hot": {"hot", figuresOf("100 clients", "turns/s", "fairness", "longest wait ms", "commands",
		"stalled"), []part{
		{"LOCK … WAIT, one proxy", cell{way: "lockproxy: LOCK … WAIT"}},
		{"LOCK … WAIT, two proxies", cell{way: "lockproxy and another"}},
		{"rueidislock", cell{way: rueidisDirect}},
		{"bsm/redislock, tries every 10 ms", cell{way: "bsm/redislock, tries every 10 ms"}},
		{"SETNX recipe, tries at once", cell{way: "SET NX recipe, tries at once"}},
		{"SETNX recipe, tries every 10 ms", cell{way: "SET NX recipe, tries every 10 ms"}}}},
}

// ratesBy are columns: the rate of direct clients, and those of the others as ratios to it.
func ratesBy(ways ...string) []part {
	list := []part{{"direct, requests/s", cell{way: viaDirect, figure: "requests/s"}}}
	for _, way := range ways {
		list = append(list, part{way + " ÷ direct", cell{way: way, figure: "requests/s",
			ratio: true}})
	}
	return list
}

func byWays(ways ...string) (list []part) {
	for _, way := range ways {
		list = append(list, part{way, cell{way: way}})
	}
	return list
}

func workloads(names ...string) (list []part) {
	for _, name := range names {
		list = append(list, part{strings.TrimSuffix(name, ","), cell{workload: name}})
	}
	return list
}

// figuresOf are columns of a workload. A sign of division asks for the ratio.
func figuresOf(workload string, names ...string) (list []part) {
	for _, name := range names {
		figure, ratio := strings.CutSuffix(name, " ÷")
		if ratio {
			name = "÷ bsm/redislock"
		}
		list = append(list, part{name, cell{workload, "", figure, ratio}})
	}
	return list
}

// writePage fills the page's text with the figures of a run.
func (l *lab) writePage(file string, suites []*suite, results [][]result) error {
	text, err := page{time.Now().UTC().Format(time.DateOnly), machine() + "; " + l.others(),
		strings.Join(l.versions, ", "), suites, results}.render()
	if err == nil {
		err = os.WriteFile(file, []byte(text), 0o644)
	}
	if err != nil {
		return fmt.Errorf("cannot write the page: %w", err)
	}
	return nil
}

func (p page) render() (string, error) {
	t, err := template.New("page").Parse(pageText)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	err = t.Execute(&b, p)
	return b.String(), err
}

// Table is the Markdown of a table.
func (p page) Table(name string) string {
	t := pageTables[name]
	header, rule := "| |", "|---|"
	for _, c := range t.columns {
		header, rule = header+" "+c.name+" |", rule+"---:|"
	}
	lines := header + "\n" + rule + "\n"
	for _, r := range t.rows {
		lines += "| " + r.name + " |"
		for _, c := range t.columns {
			lines += " " + p.Figure(t.suite, r.workload+c.workload, r.way+c.way,
				r.figure+c.figure, c.ratio) + " |"
		}
		lines += "\n"
	}
	return lines
}

// Figure is a median of a suite, "–" if there is none. It adds several figures that " + " joins. A
// way may lack one of them: direct Redis has no proxy.
func (p page) Figure(suite, workload, way, figure string, ratio bool) string {
	for i, s := range p.suites {
		for _, r := range p.results[i] {
			if s.name != suite || r.way != way || !strings.Contains(r.workload, workload) {
				continue
			}
			var values []float64
			verb := "%g"
			for name := range strings.SplitSeq(figure, " + ") {
				values = sums(values, rounds(p.results[i], r.workload, way, name))
				for _, c := range s.columns {
					if c.name == name {
						verb = c.verb
					}
				}
			}
			if ratio {
				base := rounds(p.results[i], r.workload, s.base, figure)
				values, verb = ratios(values, base), "%.2f"
			}
			if values = slices.DeleteFunc(values, math.IsNaN); len(values) > 0 {
				return fmt.Sprintf(verb, median(values))
			}
		}
	}
	return "–"
}

// sums adds round by round the values that have not failed.
func sums(a, b []float64) []float64 {
	for i := range a {
		if !math.IsNaN(a[i]) && !math.IsNaN(b[i]) {
			b[i] += a[i]
		} else if math.IsNaN(b[i]) {
			b[i] = a[i]
		}
	}
	return b
}
