package chart

import (
	"fmt"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Bars is groups of bars: one bar of each series in every group.
type Bars struct {
	Title  string
	Unit   string // of the values, on the axis
	Verb   string // by which a median is written above its bar, as "%.2f"
	Groups []string
	Series []Series
	Mark   float64 // a line across at this value; 0: none
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
	p.Y.Min, p.Y.Max = 0, b.top()*1.12 // room for what is written above
	ticks := make([]plot.Tick, len(b.Groups))
	for i, name := range b.Groups {
		ticks[i] = plot.Tick{Value: float64(i), Label: name}
	}
	p.X.Tick.Marker = plot.ConstantTicks(ticks)
	p.X.Tick.Length = 0
	return render(p, b.Series)
}

// top is the greatest value drawn.
func (b Bars) top() float64 {
	top := b.Mark
	for _, s := range b.Series {
		for _, v := range s.Values {
			top = max(top, v.Most)
		}
	}
	if top <= 0 {
		return 1 // nothing to draw
	}
	return top
}

// share is how much of the place of a group its bars take.
const share = 0.8

// Plot is called by the plot.
func (b Bars) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	w := share / float64(len(b.Series))
	if b.Mark > 0 {
		c.StrokeLine2(draw.LineStyle{Color: ink, Width: vg.Points(1), Dashes: []vg.Length{4, 3}}, c.Min.X, y(b.Mark), c.Max.X, y(b.Mark))
	}
	for k, s := range b.Series {
		for g, v := range s.Values {
			left := float64(g) - share/2 + float64(k)*w
			middle := x(left + w/2)
			if v.Rounds == 0 {
				note(c, vg.Point{X: middle, Y: y(0) + 2}, "–")
				continue
			}
			from, to := x(left+w*0.05), x(left+w*0.95)
			c.FillPolygon(colors[s.Color], []vg.Point{{X: from, Y: y(0)}, {X: to, Y: y(0)}, {X: to, Y: y(v.Median)}, {X: from, Y: y(v.Median)}})
			whisker(c, middle, y(v.Least), y(v.Most))
			note(c, vg.Point{X: middle, Y: y(v.Most) + 2}, fmt.Sprintf(b.Verb, v.Median))
		}
	}
}
