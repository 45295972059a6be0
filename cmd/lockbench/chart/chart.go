// Package chart draws the figures of a benchmark as SVG: medians as bars or lines, and a thin line
// from the least to the greatest of the rounds. The background is white, so that a figure can be
// read on a dark page too.
package chart

import (
	"bytes"
	"fmt"
	"html"
	"strings"

	"lockproxy/cmd/lockbench/stat"
)

// Series is one of the things compared: a value for each group or point of the figure. A value of
// no rounds is left out.
type Series struct {
	Name   string
	Color  Color
	Values []stat.Spread
}

// Color tells series apart, also for people who see few colours.
type Color string

// The colours. Plain is for what the others are compared with.
const (
	Plain  Color = "#707070"
	Blue   Color = "#0062a8"
	Orange Color = "#e69f00"
	Green  Color = "#008f68"
	Purple Color = "#a85c94"
	Red    Color = "#c23b22"

	ink   Color = "#222222"
	faint Color = "#dddddd"
	white Color = "#ffffff"
)

// The size of every figure, and where the plot is in it.
const (
	width, height = 600.0, 300.0
	left, right   = 70.0, 592.0
	top, bottom   = 36.0, 238.0
	nameLine      = bottom + 15 // of the names below the plot
	acrossLine    = bottom + 33 // of what these names are
	legendLine    = height - 10
)

// The sizes of texts.
const (
	titleSize  = 13.0
	labelSize  = 11.0
	nameSize   = 10.0
	figureSize = 8.5
)

// How a text lies to its place.
const (
	begins   = "start"
	centered = "middle"
	ends     = "end"
)

// canvas collects the elements of a figure.
type canvas struct{ bytes.Buffer }

func newCanvas(title string) *canvas {
	c := &canvas{}
	fmt.Fprintf(c, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" `+
		`viewBox="0 0 %[1]g %[2]g" font-family="Liberation Sans,Arial,Helvetica,sans-serif">`+"\n",
		width, height)
	c.rect(0, 0, width, height, white)
	c.text(width/2, 22, centered, titleSize, title)
	return c
}

func (c *canvas) end() []byte {
	c.WriteString("</svg>\n")
	return c.Bytes()
}

func (c *canvas) rect(x, y, w, h float64, fill Color) {
	fmt.Fprintf(c, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`+"\n",
		x, y, w, h, fill)
}

// path strokes a path of SVG. dashes is "" for none.
func (c *canvas) path(path string, color Color, width float64, dashes string) {
	fmt.Fprintf(c, `<path d="%s" fill="none" stroke="%s" stroke-width="%g" stroke-dasharray="%s"/>`+
		"\n", path, color, width, dashes)
}

// text writes s, with a white rim so that it can be read on top of lines.
func (c *canvas) text(x, y float64, anchor string, size float64, s string) {
	fmt.Fprintf(c, `<text x="%.1f" y="%.1f" text-anchor="%s" font-size="%g" fill="%s" `+
		`stroke="%s" stroke-width="2" paint-order="stroke">%s</text>`+"\n",
		x, y, anchor, size, ink, white, html.EscapeString(s))
}

// name writes the lines of a name below the plot.
func (c *canvas) name(x float64, name string) {
	for i, line := range strings.Split(name, "\n") {
		c.text(x, nameLine+float64(i)*12, centered, nameSize, line)
	}
}

// upright draws the axis at the left: its marks, lines across and its unit.
func (c *canvas) upright(a axis, unit string) {
	for _, t := range a.ticks {
		y := a.at(t.value)
		if t.label == "" {
			c.path(fmt.Sprintf("M%g,%.1fh4", left-4, y), ink, 0.5, "")
			continue
		}
		c.path(fmt.Sprintf("M%g,%.1fH%g", left, y, right), faint, 0.5, "")
		c.text(left-8, y+3.5, ends, nameSize, t.label)
	}
	c.path(fmt.Sprintf("M%g,%gV%g", left, top, bottom), ink, 0.5, "")
	middle := (top + bottom) / 2
	fmt.Fprintf(c, `<g transform="rotate(-90 13 %g)">`, middle)
	c.text(13, middle, centered, labelSize, unit)
	c.WriteString("</g>\n")
}

// level draws an axis below the plot, whose left end is at from.
func (c *canvas) level(a axis, from float64, unit string) {
	for _, t := range a.ticks {
		x := a.at(t.value)
		if t.label == "" {
			c.path(fmt.Sprintf("M%.1f,%gv4", x, bottom), ink, 0.5, "")
			continue
		}
		c.path(fmt.Sprintf("M%.1f,%gV%g", x, top, bottom), faint, 0.5, "")
		c.name(x, t.label)
	}
	c.path(fmt.Sprintf("M%g,%gH%g", from, bottom, right), ink, 0.5, "")
	c.text((from+right)/2, acrossLine, centered, labelSize, unit)
}

// whisker is the line from the least to the greatest of the rounds.
func (c *canvas) whisker(x, least, most float64) {
	c.path(fmt.Sprintf("M%.1f,%.1fV%.1fm-2.5,0h5M%[1]g,%[2]gm-2.5,0h5", x, least, most), ink,
		0.9, "")
}

// legend names the series in a row at the bottom.
func (c *canvas) legend(series []Series) {
	const swatch, gap, letter = 15, 12, 5.3 // widths; that of a letter is an average
	total := -gap + 0.0
	for _, s := range series {
		total += swatch + letter*float64(len(s.Name)) + gap
	}
	x := (width - total) / 2
	for _, s := range series {
		c.rect(x, legendLine-9, 10, 10, s.Color)
		c.text(x+swatch, legendLine, begins, nameSize, s.Name)
		x += swatch + letter*float64(len(s.Name)) + gap
	}
}
