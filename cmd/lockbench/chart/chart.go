// Package chart draws the figures of a benchmark as SVG: medians as bars or lines, and from the
// least to the greatest of the rounds a thin line. The background is white, so that a figure can be
// read on a dark page too.
package chart

import (
	"bytes"
	"fmt"
	"html"
	"image/color"
	"regexp"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"lockproxy/cmd/lockbench/stat"
)

// Series is one of the things compared: a value for each group or point of the figure. A value of
// no rounds is left out.
type Series struct {
	Name   string
	Color  Color
	Values []stat.Spread
}

// Color is what a series is told by, also by those who see few colours.
type Color int

// The colours, of which Plain is for what the others are compared with.
const (
	Plain Color = iota
	Blue
	Orange
	Green
	Purple
)

var colors = map[Color]color.Color{
	Plain:  color.RGBA{0x70, 0x70, 0x70, 0xff},
	Blue:   color.RGBA{0x00, 0x62, 0xa8, 0xff},
	Orange: color.RGBA{0xe6, 0x9f, 0x00, 0xff},
	Green:  color.RGBA{0x00, 0x8f, 0x68, 0xff},
	Purple: color.RGBA{0xa8, 0x5c, 0x94, 0xff},
}

var (
	ink      = color.RGBA{0x22, 0x22, 0x22, 0xff}
	faint    = color.RGBA{0xdd, 0xdd, 0xdd, 0xff}
	hairline = draw.LineStyle{Color: ink, Width: vg.Points(0.9)}
)

// The size of every figure, and of the strip at its bottom that says which colour is what.
const (
	width       = 600 * vg.Length(1)
	height      = 300 * vg.Length(1)
	legendStrip = 20 * vg.Length(1)
	margin      = 8 * vg.Length(1)
)

var sans = font.Font{Typeface: "Liberation", Variant: "Sans"}

func style(size vg.Length, x text.XAlignment, y text.YAlignment) text.Style {
	return text.Style{Color: ink, Font: font.From(sans, size), XAlign: x, YAlign: y,
		Handler: plot.DefaultTextHandler}
}

// newPlot is empty, with a title, an axis that has a unit, and the font of all figures.
func newPlot(title, unit string) *plot.Plot {
	p := plot.New()
	p.Title.Text = title
	p.Title.TextStyle = style(13, draw.XCenter, draw.YTop)
	p.Title.Padding = vg.Points(4)
	p.Y.Label.Text = unit
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Color, axis.Tick.Color, axis.Label.TextStyle.Color, axis.Tick.Label.Color = ink, ink,
			ink, ink
		axis.Label.TextStyle.Font, axis.Tick.Label.Font = font.From(sans, 11), font.From(sans, 10)
		axis.Label.TextStyle.Handler, axis.Tick.Label.Handler = plot.DefaultTextHandler,
			plot.DefaultTextHandler
	}
	p.X.Padding, p.Y.Padding = 0, 0
	return p
}

// render draws the plot, and below it the names of the series.
func render(p *plot.Plot, series []Series) ([]byte, error) {
	svg := vgsvg.New(width, height)
	canvas := draw.New(svg)
	canvas.FillPolygon(color.White, []vg.Point{{}, {X: width}, {X: width, Y: height}, {Y: height}})
	inner := draw.Crop(canvas, margin, -margin, margin, -margin)
	if len(series) > 1 {
		legend(inner, series)
		inner = draw.Crop(inner, 0, 0, legendStrip, 0)
	}
	p.Draw(inner)
	var out bytes.Buffer
	if _, err := svg.WriteTo(&out); err != nil {
		return nil, fmt.Errorf("cannot draw the figure %q: %w", p.Title.Text, err)
	}
	return anyFont(out.Bytes()), nil
}

var textElement = regexp.MustCompile(`<text( [^>]*font-family:Liberation Sans)` +
	`(;[^>]*font-size:([\d.]+)px[^>]*)>([^<]*)</text>`)

// anyFont makes texts as wide as they were meant to be on machines that don't have this font, too.
func anyFont(svg []byte) []byte {
	return textElement.ReplaceAllFunc(svg, func(element []byte) []byte {
		part := textElement.FindSubmatch(element)
		size, err := strconv.ParseFloat(string(part[3]), 64)
		if err != nil {
			return element
		}
		w := style(vg.Length(size), draw.XLeft,
			draw.YBottom).Width(html.UnescapeString(string(part[4])))
		return fmt.Appendf(nil, `<text textLength="%.1f" lengthAdjust="spacingAndGlyphs"%s,Arial,`+
			`Helvetica,sans-serif%s>%s</text>`, w.Points(), part[1], part[2], part[4])
	})
}

// legend writes the names of the series in a row at the bottom.
func legend(c draw.Canvas, series []Series) {
	const swatch, gap, between = 10 * vg.Length(1), 5 * vg.Length(1), 22 * vg.Length(1)
	label := style(11, draw.XLeft, draw.YBottom)
	total := -between
	for _, s := range series {
		total += swatch + gap + label.Width(s.Name) + between
	}
	x, y := c.Center().X-total/2, c.Min.Y
	for _, s := range series {
		c.FillPolygon(colors[s.Color], []vg.Point{{X: x, Y: y}, {X: x + swatch, Y: y},
			{X: x + swatch, Y: y + swatch}, {X: x, Y: y + swatch}})
		c.FillText(label, vg.Point{X: x + swatch + gap, Y: y}, s.Name)
		x += swatch + gap + label.Width(s.Name) + between
	}
}

// whisker is the line from the least to the greatest of the rounds.
func whisker(c draw.Canvas, x, least, most vg.Length) {
	const half = 2.5 * vg.Length(1)
	c.StrokeLine2(hairline, x, least, x, most)
	c.StrokeLine2(hairline, x-half, least, x+half, least)
	c.StrokeLine2(hairline, x-half, most, x+half, most)
}

// note writes a value so that it can be read on top of lines.
func note(c draw.Canvas, at vg.Point, txt string) {
	s := style(8.5, draw.XCenter, draw.YBottom)
	w, h := s.Width(txt)/2+1, s.Height(txt)+1
	c.FillPolygon(color.White, []vg.Point{{X: at.X - w, Y: at.Y}, {X: at.X + w, Y: at.Y},
		{X: at.X + w, Y: at.Y + h}, {X: at.X - w, Y: at.Y + h}})
	c.FillText(s, at, txt)
}
