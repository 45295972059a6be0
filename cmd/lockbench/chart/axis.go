package chart

import (
	"math"
	"strconv"
	"strings"
)

// axis shows values from low to high at places between from and to.
type axis struct {
	low, high, from, to float64
	log                 bool // each step multiplies
	ticks               []tick
}

// tick is a mark on an axis; a small one has no label.
type tick struct {
	value float64
	label string
}

// at is the place of a value. What lies before the axis is at its beginning.
func (a axis) at(value float64) float64 {
	value, low, high := max(value, a.low), a.low, a.high
	if a.log {
		value, low, high = math.Log(value), math.Log(low), math.Log(high)
	}
	return a.from + (value-low)/(high-low)*(a.to-a.from)
}

// axisFor begins at 0, or if each step multiplies at a power of ten, and has room beyond the
// greatest value of all series and least.
func axisFor(series []Series, log bool, least, from, to float64) axis {
	a := axis{high: least, from: from, to: to, log: log}
	for _, s := range series {
		for _, v := range s.Values {
			a.high = max(a.high, v.Most)
			if v.Least > 0 && (a.low == 0 || v.Least < a.low) {
				a.low = v.Least
			}
		}
	}
	if a.high <= 0 { // nothing to draw
		a.low, a.high = 1, 1
	}
	const room = 0.12 // as a share of the axis
	if !log {
		a.low = 0
		a.ticks = round(a.high)
		a.high *= 1 + room
		return a
	}
	a.low = math.Pow(10, math.Floor(math.Log10(a.low)))
	a.high = max(a.high, 10*a.low)
	a.high *= math.Pow(a.high/a.low, room)
	a.ticks = powers(a.low, a.high)
	return a
}

// powers marks the powers of ten, and without a label their multiples.
func powers(low, high float64) (ticks []tick) {
	for p := low; p <= high; p *= 10 {
		ticks = append(ticks, tick{p, group(p)})
		for k := 2.0; k < 10 && k*p <= high; k++ {
			ticks = append(ticks, tick{k * p, ""})
		}
	}
	return ticks
}

// round marks four to ten round values from 0 to high.
func round(high float64) (ticks []tick) {
	step := math.Pow(10, math.Floor(math.Log10(high)))
	switch n := high / step; { // 1 to 10 steps
	case n < 2:
		step /= 5
	case n < 5:
		step /= 2
	}
	decimals := max(0, -int(math.Floor(math.Log10(step))))
	for k := 0.0; k*step <= high; k++ {
		label := strconv.FormatFloat(k*step, 'f', decimals, 64)
		if decimals == 0 {
			label = group(k * step)
		}
		ticks = append(ticks, tick{k * step, label})
	}
	return ticks
}

// group writes a whole number with commas, and one below 1 as it is.
func group(v float64) string {
	if v > 0 && v < 1 {
		return strconv.FormatFloat(v, 'g', -1, 64)
	}
	digits := strconv.FormatFloat(v, 'f', 0, 64)
	var out strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			out.WriteByte(',')
		}
		out.WriteRune(d)
	}
	return out.String()
}
