package main

import (
	"fmt"

	"lockproxy/cmd/lockbench/stat"
)

// goal is a figure that has to reach something.
type goal struct {
	name    string
	want    float64
	atLeast bool // otherwise at most
	unit    string
	got     stat.Spread // judged by its median
}

// judged is a job with goals.
type judged interface{ goals() []goal }

// keepLeast makes a goal that of the worst of several figures.
func (g *goal) keepLeast(s stat.Spread) {
	if g.got.Rounds == 0 && g.got.Failed == 0 || s.Rounds > 0 && s.Median < g.got.Median ||
		s.Rounds == 0 {
		g.got = s
	}
}

func (g goal) met() bool {
	if g.got.Rounds == 0 {
		return false
	}
	if g.atLeast {
		return g.got.Median >= g.want
	}
	return g.got.Median <= g.want
}

// goalSection is nil if nothing measured has a goal.
func goalSection(jobs []job) *section {
	s := &section{title: "Goals", before: "What lockproxy is to reach, and what it reached here: " +
		"medians, in brackets the least and most of the rounds.",
		header: []string{"", "goal", "measured", ""}}
	for _, j := range jobs {
		j, ok := j.(judged)
		if !ok {
			continue
		}
		for _, g := range j.goals() {
			bound, verdict := "at most", "missed"
			if g.atLeast {
				bound = "at least"
			}
			if g.met() {
				verdict = "met"
			}
			s.row(g.name, fmt.Sprintf("%s %.4g%s", bound, g.want, g.unit),
				g.got.Format("%.2f")+g.unit, verdict)
		}
	}
	if len(s.rows) == 0 {
		return nil
	}
	return s
}
