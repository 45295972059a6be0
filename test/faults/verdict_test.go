//go:build faults && linux

package faults_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"lockproxy/internal/test/faults/check"
	"lockproxy/internal/test/faults/history"
)

// verdict is the outcome of a work.
type verdict struct {
	h      history.History
	report check.Report
}

// afterReplacement is how long answers can still take when a master has been replaced: a second, as
// docs/cluster.md says, and one more on a busy machine.
const afterReplacement = 2 * time.Second

// hangs finds the commands that got no answer in time. It leaves out those that waited while a
// master was being replaced.
func hangs(h history.History, replacements []replacement) (found []check.Violation) {
	for _, o := range h.Ops {
		if o.Left == 0 || o.HungUp || slices.ContainsFunc(replacements, func(r replacement) bool {
			return r.from <= o.Left && o.Left <= r.to+afterReplacement.Nanoseconds()
		}) {
			continue
		}
		found = append(found, check.Violation{Rule: "hang", Ops: []history.Op{o},
			Text: fmt.Sprintf("client %d had no answer to %s %s", o.Client, o.Kind, o.Key)})
	}
	return found
}

// refusals finds error replies that the faults don't explain.
func refusals(h history.History) (found []check.Violation) {
	for _, o := range h.Ops {
		code, _, _ := strings.Cut(o.Got, " ")
		switch code {
		case "UPSTREAM", "NOREPLICAS", "CLUSTERDOWN", "TRYAGAIN", "EXECABORT", "LOADING":
			continue
		}
		if o.Outcome == history.Refused {
			found = append(found, check.Violation{Rule: "answer", Ops: []history.Op{o},
				Text: fmt.Sprintf("client %d asked %s %s, got %q", o.Client, o.Kind, o.Key, o.Got)})
		}
	}
	return found
}

// broken are the violations of some rules.
func (v verdict) broken(rules ...string) (list []string) {
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

func (v verdict) line(o history.Op) string {
	return fmt.Sprintf("at %s to %s: client %d at proxy %d: %s %s token %d: %s %d %s",
		v.since(o.Call), v.since(o.Return),
		o.Client, o.Proxy, o.Kind, o.Key, o.Token, o.Outcome, o.Result, shortened(o.Got))
}

// around is what the client of an operation asked in the
// second before it, and right after it: its pipeline.
func (v verdict) around(wrong history.Op) string {
	var text strings.Builder
	for _, o := range v.h.Ops {
		if o.Client == wrong.Client && o.Call > wrong.Call-int64(time.Second) &&
			o.Call < wrong.Call+int64(10*time.Millisecond) {
			fmt.Fprintf(&text, "\n      its client, %s; wanted %s", v.line(o), shortened(o.Want))
		}
	}
	return text.String()
}

func (v verdict) since(at int64) string { return history.Seconds(at, v.h.Ops[0].Call) }

// timeline is the times of the faults.
func (v verdict) timeline() string {
	var text strings.Builder
	for _, f := range v.h.Faults {
		fmt.Fprintf(&text, "\n    %s to %s: %s", v.since(f.From), v.since(f.To), f.Kind)
	}
	return text.String()
}

// taken is how many locks of each kind were taken.
func (v verdict) taken() map[string]int {
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
func (v verdict) lostWrites() (lost int) {
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

func shortened(text string) string {
	if len(text) > 120 {
		return text[max(0, len(text)-150):] + " ..."
	}
	return text
}
