package chart

import (
	"math"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
)

// ticksAt marks the given values.
func ticksAt(values []float64) plot.ConstantTicks {
	ticks := make(plot.ConstantTicks, len(values))
	for i, v := range values {
		ticks[i] = plot.Tick{Value: v, Label: group(v)}
	}
	return ticks
}

// round marks four to ten round values.
func round(low, high float64) []plot.Tick {
	step := math.Pow(10, math.Floor(math.Log10(high-low)))
	switch n := (high - low) / step; { // 1 to 10 steps
	case n < 2:
		step /= 5
	case n < 5:
		step /= 2
	}
	decimals := max(0, -int(math.Floor(math.Log10(step))))
	var ticks []plot.Tick
	for k := math.Ceil(low / step); k*step <= high; k++ {
		label := strconv.FormatFloat(k*step, 'f', decimals, 64)
		if decimals == 0 {
			label = group(k * step)
		}
		ticks = append(ticks, plot.Tick{Value: k * step, Label: label})
	}
	return ticks
}

// group writes a whole number with commas.
func group(v float64) string {
	digits := strconv.FormatFloat(math.Abs(v), 'f', 0, 64)
	var out strings.Builder
	if v < 0 {
		out.WriteByte('-')
	}
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			out.WriteByte(',')
		}
		out.WriteRune(d)
	}
	return out.String()
}
