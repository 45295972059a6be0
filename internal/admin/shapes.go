package admin

import (
	"cmp"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"lockproxy/internal/journal"
	"lockproxy/internal/names"
	"lockproxy/internal/survey"
	"lockproxy/lockcmd"
	"lockproxy/lockcmd/keyname"
)

// shapesCollector has the metrics of the shapes of keys that clients have waited longest for within
// the last hour. All others are one. So there are few labels, and they change slowly.
type shapesCollector struct {
	costs func(within time.Duration) []journal.Cost
	most  int // shapes with their own label
}

const (
	// shapesWithin is the time that the metrics are about.
	shapesWithin = 5 * time.Minute
	// maxShapeLabel bounds a label, characters.
	maxShapeLabel = 100
	// otherShapes is the label of all other shapes together, whose database is "".
	otherShapes = "other"
)

// shapeReading is one metric of a shape.
type shapeReading struct {
	desc *prometheus.Desc
	read func(c *journal.Cost) float64
}

var shapeReadings = []shapeReading{
	shapeGauge("wait_seconds", "How long all clients together have waited for locks of a shape",
		func(c *journal.Cost) float64 { return c.Wait.Seconds() }),
	shapeGauge("hold_seconds", "How long all locks of a shape together were held",
		func(c *journal.Cost) float64 { return c.Hold.Seconds() }),
	shapeGauge("acquired", "How often locks of a shape were acquired",
		func(c *journal.Cost) float64 { return float64(c.Acquired) }),
	shapeGauge("refused", "How often a LOCK without WAIT was refused for locks of a shape",
		func(c *journal.Cost) float64 { return float64(c.Refused) }),
}

func shapeGauge(name, help string, read func(c *journal.Cost) float64) shapeReading {
	return shapeReading{prometheus.NewDesc("lockproxy_lock_shape_"+name, help+
		" within the last five minutes, through this proxy: of the costliest shapes of the last "+
		"hour (--metric-shapes), and of all others.", []string{"db", "shape"}, nil), read}
}

func (c *shapesCollector) Describe(out chan<- *prometheus.Desc) {
	for _, r := range shapeReadings {
		out <- r.desc
	}
}

func (c *shapesCollector) Collect(out chan<- prometheus.Metric) {
	for _, cost := range c.costliest() {
		db := strconv.Itoa(cost.DB)
		if cost.DB < 0 {
			db = ""
		}
		for _, r := range shapeReadings {
			out <- prometheus.MustNewConstMetric(r.desc, prometheus.GaugeValue, r.read(&cost), db,
				cost.Key)
		}
	}
}

// costliest is the costs of the shapes with labels, and last those of all others, in database -1.
func (c *shapesCollector) costliest() []journal.Cost {
	others := []journal.Cost{{Lock: names.Lock{DB: -1, Key: otherShapes}}}
	var list []journal.Cost
	index := map[names.Lock]int{}
	hour := shapesOf(c.costs(journal.Window))
	for _, cost := range hour[:min(len(hour), c.most)] {
		if cost.Wait > 0 {
			index[cost.Lock] = len(list)
			list = append(list, journal.Cost{Lock: cost.Lock})
		}
	}
	for _, cost := range shapesOf(c.costs(shapesWithin)) {
		if i, ok := index[cost.Lock]; ok {
			list[i] = cost
		} else {
			cost.Lock = others[0].Lock
			others = append(others, cost)
		}
	}
	return append(list, journal.Merge(others)...)
}

// shapesOf merges costs by what can be a label, the longest wait first.
func shapesOf(list []journal.Cost) []journal.Cost {
	for i := range list {
		label := []rune(survey.Printable(keyname.Shape(list[i].Key)))
		list[i].Blame = nil
		list[i].Key = cmp.Or(string(label[:min(len(label), maxShapeLabel)]), `""`)
	}
	list = lockcmd.MergeShapes(list)
	lockcmd.SortCosts(list, "wait")
	return list
}
