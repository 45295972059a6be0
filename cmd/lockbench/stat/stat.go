// Package stat says what several rounds of one measurement came to: the median, and between what it
// lay.
package stat

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Failed is the figure of a round that failed: it is counted as such, and in nothing else.
var Failed = math.NaN()

// Spread is what the rounds of one measurement came to. The zero Spread is of no rounds.
type Spread struct {
	Median, Least, Most float64
	Rounds              int // that succeeded: if none did, the figures are 0
	Failed              int
}

// Of gathers the figures of the rounds.
func Of(rounds []float64) Spread {
	good := slices.DeleteFunc(slices.Clone(rounds), math.IsNaN)
	s := Spread{Rounds: len(good), Failed: len(rounds) - len(good)}
	if s.Rounds > 0 {
		s.Median, s.Least, s.Most = Median(good), slices.Min(good), slices.Max(good)
	}
	return s
}

// Median of at least one value; of an even number, the mean of the middle two.
func Median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 0 {
		return (sorted[middle-1] + sorted[middle]) / 2
	}
	return sorted[middle]
}

// Ratios divides round by round. A round in which either failed has failed.
func Ratios(rounds, base []float64) []float64 {
	ratios := make([]float64, len(rounds))
	for r := range rounds {
		ratios[r] = rounds[r] / base[r]
		if math.IsInf(ratios[r], 0) {
			ratios[r] = Failed
		}
	}
	return ratios
}

// Format is "median (least–most)", each by verb; a single round has no spread. It says how many
// rounds failed.
func (s Spread) Format(verb string) string {
	if s.Rounds == 0 {
		if s.Failed == 0 {
			return "–"
		}
		return "failed"
	}
	text := write(verb, s.Median)
	if s.Rounds > 1 {
		text += " (" + write(verb, s.Least) + "–" + write(verb, s.Most) + ")"
	}
	if s.Failed > 0 {
		text += fmt.Sprintf(", %d failed", s.Failed)
	}
	return text
}

// write writes a value; one that is rounded to zero without a sign.
func write(verb string, value float64) string {
	text := fmt.Sprintf(verb, value)
	if strings.Trim(text, "-0.") == "" {
		text = strings.TrimPrefix(text, "-")
	}
	return text
}
