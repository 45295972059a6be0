package chart

import (
	"fmt"
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Bars is groups of bars: one bar of each series in every group.
type Bars struct {
	Title  string
	Unit   string   // of the values, on the axis
	Verb   string   // by which a median is written above its bar, as "%.2f"
	Groups []string // a name may have several lines
	Series []Series
	Mark   float64 // a line across at this value; 0: none
	Log    bool    // each step of the axis multiplies: for values that lie far apart
}

// SVG draws the figure.
func (b Bars) SVG() ([]byte, error) {
	p := newPlot(b.Title, b.Unit)
	grid := plotter.NewGrid()
	grid.Vertical.Color = nil
	grid.Horizontal.Color = faint
	p.Add(grid)
	p.Add(b)
	p.X.Min, p.X.Max = -0.5, float64(len(b.Groups))-0.5
	r := rangeOf(b.Series, b.Log)
	r.high = max(r.high, b.Mark)
	r.onto(&p.Y, 0.1) // room for what is written above
	ticks := make([]plot.Tick, len(b.Groups))
	for i, name := range b.Groups {
		ticks[i] = plot.Tick{Value: float64(i), Label: name}
	}
	p.X.Tick.Marker = plot.ConstantTicks(ticks)
	p.X.Tick.Color, p.X.Tick.Length = color.Transparent, 4 // room between axis and names
	return render(p, b.Series)
}

// share is how much of the place of a group its bars take.
const share = 0.8

// Plot is called by the plot.
func (b Bars) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	w := share / float64(len(b.Series))
	bottom := c.Min.Y
	if b.Mark > 0 {
		c.StrokeLine2(draw.LineStyle{Color: ink, Width: vg.Points(1), Dashes: []vg.Length{4, 3}},
			c.Min.X, y(b.Mark), c.Max.X, y(b.Mark))
	}
	for k, s := range b.Series {
		for g, v := range s.Values {
			left := float64(g) - share/2 + float64(k)*w
			middle := x(left + w/2)
			if v.Rounds == 0 {
				note(c, vg.Point{X: middle, Y: bottom + 2}, "–")
				continue
			}
			from, to, top := x(left+w*0.05), x(left+w*0.95), inside(v.Median, p.Y, y)
			c.FillPolygon(colors[s.Color], []vg.Point{{X: from, Y: bottom}, {X: to, Y: bottom},
				{X: to, Y: top}, {X: from, Y: top}})
			most := inside(v.Most, p.Y, y)
			whisker(c, middle, inside(v.Least, p.Y, y), most)
			note(c, vg.Point{X: middle, Y: most + 2}, fmt.Sprintf(b.Verb, v.Median))
		}
	}
}

// inside is where a value is on an axis; at its beginning if it lies before that.
func inside(value float64, axis plot.Axis, at func(float64) vg.Length) vg.Length {
	return at(max(value, axis.Min))
}
