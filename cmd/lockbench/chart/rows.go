package chart

import (
	"fmt"

	"lockproxy/cmd/lockbench/stat"
)

// Rows is one bar for each of several things, from left to right, with room for long names.
type Rows struct {
	Title string
	Unit  string // of the values, below
	Verb  string // by which a median is written next to its bar, as "%.2f"
	Log   bool   // each step of the axis multiplies
	Rows  []Row  // from above
}

// Row is one bar.
type Row struct {
	Name  string
	Color Color
	Value stat.Spread
}

// SVG draws the figure.
func (r Rows) SVG() []byte {
	const left = 230
	c := newCanvas(r.Title)
	values := make([]stat.Spread, len(r.Rows))
	for i, row := range r.Rows {
		values[i] = row.Value
	}
	x := axisFor([]Series{{Values: values}}, r.Log, 0, left, right)
	c.level(x, left, r.Unit)
	place := (bottom - top) / float64(len(r.Rows))
	for i, row := range r.Rows {
		middle := top + (float64(i)+0.5)*place
		c.text(left-6, middle+3.5, ends, nameSize, row.Name)
		if row.Value.Rounds == 0 {
			c.text(left+4, middle+3, begins, figureSize, "–")
			continue
		}
		least, most := x.at(row.Value.Least), x.at(row.Value.Most)
		c.rect(left, middle-place*share/2, x.at(row.Value.Median)-left, place*share, row.Color)
		c.path(fmt.Sprintf("M%.1f,%.1fH%.1fm0,-2.5v5M%[1]g,%[2]gm0,-2.5v5", least, middle, most),
			ink, 0.9, "")
		c.text(most+4, middle+3, begins, figureSize, fmt.Sprintf(r.Verb, row.Value.Median))
	}
	return c.end()
}
