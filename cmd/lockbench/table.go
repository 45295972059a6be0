package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// markdown is a table with a row for each workload and way. Its cells are medians over the rounds,
// with the least and most of them in brackets.
func (s *suite) markdown(results []result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n## %s\n\n%s\n\n", s.title, s.about)
	header, rule := "| workload | way |", "|---|---|"
	for _, c := range s.columns {
		header, rule = header+" "+c.name+" |", rule+"---:|"
		if c.ratios && s.base != "" {
			header, rule = header+" ÷ "+s.base+" |", rule+"---:|"
		}
	}
	fmt.Fprintf(&b, "%s\n%s\n", header, rule)
	for _, c := range distinct(results) {
		fmt.Fprintf(&b, "| %s | %s |", c.workload, c.way)
		for _, col := range s.columns {
			values := rounds(results, c.workload, c.way, col.name)
			fmt.Fprintf(&b, " %s |", summary(values, col.verb))
			if !col.ratios || s.base == "" {
				continue
			}
			cell := ""
			if c.way != s.base {
				base := rounds(results, c.workload, s.base, col.name)
				cell = summary(ratios(values, base), "%.2f")
			}
			fmt.Fprintf(&b, " %s |", cell)
		}
		b.WriteString("\n")
	}
	for _, r := range results {
		if r.err != nil {
			fmt.Fprintf(&b, "\nA run failed and counts in no figure: %s, %s, round %d: %v\n",
				r.workload, r.way, r.round+1, r.err)
		}
	}
	return b.String()
}

// csv has a line for every figure of every round.
func (s *suite) csv(results []result) string {
	var b strings.Builder
	for _, r := range results {
		for _, name := range slices.Sorted(maps.Keys(r.figures)) {
			fmt.Fprintf(&b, "%s,%q,%q,%d,%q,%g\n", s.name, r.workload, r.way, r.round+1, name,
				r.figures[name])
		}
	}
	return b.String()
}

// distinct is one result of each case, in the order of the workloads and their ways.
func distinct(results []result) (list []result) {
	seen := map[string]bool{}
	for _, r := range results {
		if !seen[r.workload+"\x00"+r.way] {
			seen[r.workload+"\x00"+r.way] = true
			list = append(list, r)
		}
	}
	return list
}

// rounds is a figure of a case in every round. A run that does not have the figure has failed.
func rounds(results []result, workload, way, figure string) (values []float64) {
	for _, r := range results {
		if r.workload == workload && r.way == way {
			value, ok := r.figures[figure]
			if !ok {
				value = failedRun
			}
			values = append(values, value)
		}
	}
	return values
}

// ratios divides round by round. A round in which either failed has failed.
func ratios(of, base []float64) []float64 {
	list := make([]float64, len(of))
	for i := range of {
		list[i] = failedRun
		if i < len(base) && base[i] != 0 {
			list[i] = of[i] / base[i]
		}
	}
	return list
}

// summary is "median (least–most)". A single round has no spread.
func summary(values []float64, verb string) string {
	good := slices.DeleteFunc(slices.Clone(values), math.IsNaN)
	if len(good) == 0 {
		return "–"
	}
	text := fmt.Sprintf(verb, median(good))
	if len(good) > 1 {
		text += fmt.Sprintf(" ("+verb+"–"+verb+")", slices.Min(good), slices.Max(good))
	}
	if failed := len(values) - len(good); failed > 0 {
		text += fmt.Sprintf(", %d failed", failed)
	}
	return text
}

// median of at least one value; of an even number, the mean of the middle two.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 0 {
		return (sorted[middle-1] + sorted[middle]) / 2
	}
	return sorted[middle]
}
