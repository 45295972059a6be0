package chart

import (
	"fmt"
	"strings"
)

// Lines is a line for each series, over an axis on which each step multiplies.
type Lines struct {
	Title  string
	Unit   string // of the values
	Across string // what the axis below counts
	At     []float64
	Series []Series
}

// SVG draws the figure.
func (l Lines) SVG() []byte {
	c := newCanvas(l.Title)
	x := axis{low: l.At[0] * 0.8, high: l.At[len(l.At)-1] * 1.5, from: left, to: right, log: true}
	for _, v := range l.At {
		x.ticks = append(x.ticks, tick{v, group(v)})
	}
	y := axisFor(l.Series, false, 0, bottom, top)
	c.level(x, left, l.Across)
	c.upright(y, l.Unit)
	for _, s := range l.Series {
		var points []string
		for i, v := range s.Values {
			if v.Rounds == 0 {
				continue
			}
			at := x.at(l.At[i])
			c.whisker(at, y.at(v.Least), y.at(v.Most))
			c.rect(at-3, y.at(v.Median)-3, 6, 6, s.Color)
			points = append(points, fmt.Sprintf("%.1f,%.1f", at, y.at(v.Median)))
		}
		if len(points) > 1 {
			c.path("M"+strings.Join(points, "L"), s.Color, 2, "")
		}
	}
	c.legend(l.Series)
	return c.end()
}
