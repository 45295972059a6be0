package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// docs/bench.md is what a run of all suites writes, except for the figures, and each of its figures
// is one that the suites have.
func TestPage(t *testing.T) {
	l := &lab{files: 30000, proxies: []proxyBinary{{viaLockproxy, ""}}}
	p := page{Date: "1", Machine: "1", Programs: "1", suites: suitesNamed([]string{"all"}, false)}
	for _, s := range p.suites {
		var results []result
		for _, c := range s.cases(l) {
			f := figures{}
			for _, column := range s.columns {
				f[column.name] = 1
			}
			results = append(results, result{workload: c.workload, way: c.way, figures: f})
		}
		p.results = append(p.results, results)
	}
	made, err := p.render()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(made, "–") {
		t.Errorf("a figure is none of a suite:\n%s", made)
	}
	page, err := os.ReadFile("../../docs/bench.md")
	if err != nil {
		t.Fatal(err)
	}
	origin := regexp.MustCompile(`(?m)^\| (date|machine|programs) \|.*$`)
	figure := regexp.MustCompile(`(?m)(\| |takes |and\n|runs\n)(\d[\d.]*|–)`)
	without := func(text string) string {
		return figure.ReplaceAllString(origin.ReplaceAllString(text, "| $1 |"), "${1}1")
	}
	if got, want := without(string(page)), without(made); got != want {
		t.Errorf("docs/bench.md is\n%s\nwant\n%s", got, want)
	}
}

// Figures that are added are added in each round, and a way may lack one of them.
func TestSums(t *testing.T) {
	columns := []column{{"a", "%.1f", true}, {"b", "%.1f", false}}
	run := func(round int, way string, f figures) result {
		return result{round: round, workload: "GET, 1 client", way: way, figures: f}
	}
	p := page{suites: []*suite{{name: "relay", base: viaDirect, columns: columns}},
		results: [][]result{{run(0, viaDirect, figures{"a": 1}), run(0, "x", figures{"a": 2, "b": 1}),
			run(1, viaDirect, figures{"a": 2}), run(1, "x", figures{"a": 8, "b": 3})}}}
	for _, c := range []struct {
		way, figure string
		ratio       bool
		want        string
	}{{viaDirect, "a + b", false, "1.5"}, {"x", "a + b", false, "7.0"}, {"x", "a", true, "3.00"},
		{"x", "c", false, "–"}, {"y", "a", false, "–"}} {
		if got := p.Figure("relay", "1 client", c.way, c.figure, c.ratio); got != c.want {
			t.Errorf("%s of %s: %s, want %s", c.figure, c.way, got, c.want)
		}
	}
}
