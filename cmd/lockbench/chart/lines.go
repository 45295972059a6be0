package chart

import (
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
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
func (l Lines) SVG() ([]byte, error) {
	p := newPlot(l.Title, l.Unit)
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = faint, faint
	p.Add(grid)
	p.Add(l)
	p.X.Label.Text = l.Across
	p.X.Scale = plot.LogScale{}
	p.X.Min, p.X.Max = l.At[0]*0.8, l.At[len(l.At)-1]*1.5
	rangeOf(l.Series, false).onto(&p.Y, 0.05)
	p.X.Tick.Marker = ticksAt(l.At)
	return render(p, l.Series)
}

// Plot is called by the plot.
func (l Lines) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	for _, s := range l.Series {
		var points []vg.Point
		for i, v := range s.Values {
			if v.Rounds == 0 {
				continue
			}
			at := vg.Point{X: x(l.At[i]), Y: y(v.Median)}
			points = append(points, at)
			whisker(c, at.X, y(v.Least), y(v.Most))
			c.DrawGlyph(draw.GlyphStyle{Color: colors[s.Color], Radius: vg.Points(3),
				Shape: draw.CircleGlyph{}}, at)
		}
		if len(points) > 1 {
			c.StrokeLines(draw.LineStyle{Color: colors[s.Color], Width: vg.Points(2)}, points)
		}
	}
}
