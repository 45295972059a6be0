package chart

import (
	"math"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
)

// span is what of an axis is shown.
type span struct {
	low, high float64
	log       bool
}

// rangeOf is from 0, or on a logarithmic axis from a power of ten, to the greatest value of all
// series.
func rangeOf(series []Series, log bool) span {
	r := span{log: log}
	for _, s := range series {
		for _, v := range s.Values {
			r.high = max(r.high, v.Most)
			if v.Least > 0 && (r.low == 0 || v.Least < r.low) {
				r.low = v.Least
			}
		}
	}
	if r.high <= 0 { // nothing to draw
		r.low, r.high = 1, 1
	}
	if !log {
		r.low = 0
		return r
	}
	r.low = math.Pow(10, math.Floor(math.Log10(r.low)))
	r.high = max(r.high, 10*r.low)
	return r
}

// onto sets up an axis with some room at its end, as a share of its length.
func (r span) onto(axis *plot.Axis, room float64) {
	axis.Min, axis.Max = r.low, r.high+(r.high-r.low)*room
	axis.Tick.Marker = plot.TickerFunc(round)
	if r.log {
		axis.Max = r.high * math.Pow(r.high/r.low, room)
		axis.Scale = plot.LogScale{}
		axis.Tick.Marker = plot.TickerFunc(powers)
	}
}

// powers marks the powers of ten, and without a label their multiples.
func powers(low, high float64) (ticks []plot.Tick) {
	for p := low; p <= high; p *= 10 {
		ticks = append(ticks, plot.Tick{Value: p, Label: group(p)})
		for k := 2.0; k < 10 && k*p <= high; k++ {
			ticks = append(ticks, plot.Tick{Value: k * p})
		}
	}
	return ticks
}

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

// group writes a whole number with commas, and one below 1 as it is.
func group(v float64) string {
	if v > 0 && v < 1 {
		return strconv.FormatFloat(v, 'g', -1, 64)
	}
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
