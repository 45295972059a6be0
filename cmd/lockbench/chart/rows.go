package chart

import (
	"fmt"
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

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
func (r Rows) SVG() ([]byte, error) {
	p := newPlot(r.Title, "")
	p.X.Label.Text = r.Unit
	grid := plotter.NewGrid()
	grid.Vertical.Color = faint
	grid.Horizontal.Color = nil
	p.Add(grid)
	p.Add(r)
	values := Series{}
	ticks := make([]plot.Tick, len(r.Rows))
	for i, row := range r.Rows {
		values.Values = append(values.Values, row.Value)
		ticks[i] = plot.Tick{Value: r.at(i), Label: row.Name}
	}
	rangeOf([]Series{values}, r.Log).onto(&p.X, 0.15)
	p.Y.Min, p.Y.Max = -0.6, float64(len(r.Rows))-0.4
	p.Y.Tick.Marker = plot.ConstantTicks(ticks)
	p.Y.Tick.Color, p.Y.Tick.Length = color.Transparent, 4 // room between axis and names
	return render(p, nil)
}

// at is the place of a row on the axis, which begins below.
func (r Rows) at(i int) float64 { return float64(len(r.Rows) - 1 - i) }

// Plot is called by the plot.
func (r Rows) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	label := style(8.5, draw.XLeft, draw.YCenter)
	for i, row := range r.Rows {
		low, high, middle := y(r.at(i)-share/2), y(r.at(i)+share/2), y(r.at(i))
		if row.Value.Rounds == 0 {
			c.FillText(label, vg.Point{X: c.Min.X + 4, Y: middle}, "–")
			continue
		}
		left, right := c.Min.X, inside(row.Value.Median, p.X, x)
		c.FillPolygon(colors[row.Color], []vg.Point{{X: left, Y: low}, {X: right, Y: low},
			{X: right, Y: high}, {X: left, Y: high}})
		least, most := inside(row.Value.Least, p.X, x), inside(row.Value.Most, p.X, x)
		c.StrokeLine2(hairline, least, middle, most, middle)
		for _, end := range []vg.Length{least, most} {
			c.StrokeLine2(hairline, end, middle-2.5, end, middle+2.5)
		}
		text := fmt.Sprintf(r.Verb, row.Value.Median)
		w, h := label.Width(text)+2, label.Height(text)/2
		box := []vg.Point{{X: most + 3, Y: middle - h}, {X: most + 3 + w, Y: middle - h},
			{X: most + 3 + w, Y: middle + h}, {X: most + 3, Y: middle + h}}
		c.FillPolygon(color.White, box)
		c.FillText(label, vg.Point{X: most + 4, Y: middle}, text)
	}
}
