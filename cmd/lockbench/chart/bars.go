package chart

import "fmt"

// Bars is groups of bars: one bar of each series in every group.
type Bars struct {
	Title  string
	Unit   string   // of the values, on the axis
	Verb   string   // by which a median is written above its bar, as "%.2f"
	Groups []string // a name can have two lines
	Series []Series
	Mark   float64 // a line across at this value; 0: none
	Log    bool    // each step of the axis multiplies: for values that lie far apart
}

// share is how much of its place a group of bars or a row takes.
const share = 0.8

// SVG draws the figure.
func (b Bars) SVG() []byte {
	c := newCanvas(b.Title)
	y := axisFor(b.Series, b.Log, b.Mark, bottom, top)
	c.upright(y, b.Unit)
	if b.Mark > 0 {
		c.path(fmt.Sprintf("M%g,%.1fH%g", left, y.at(b.Mark), right), ink, 1, "4 3")
	}
	place := (right - left) / float64(len(b.Groups))
	w := place * share / float64(len(b.Series))
	for g, name := range b.Groups {
		begin := left + (float64(g)+(1-share)/2)*place
		c.name(begin+place*share/2, name)
		for k, s := range b.Series {
			x, v := begin+float64(k)*w, s.Values[g]
			if v.Rounds == 0 {
				c.text(x+w/2, bottom-2, centered, figureSize, "–")
				continue
			}
			median, most := y.at(v.Median), y.at(v.Most)
			c.rect(x+w*0.05, median, w*0.9, bottom-median, s.Color)
			c.whisker(x+w/2, y.at(v.Least), most)
			c.text(x+w/2, most-4, centered, figureSize, fmt.Sprintf(b.Verb, v.Median))
		}
	}
	c.legend(b.Series)
	return c.end()
}
