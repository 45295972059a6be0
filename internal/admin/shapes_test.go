package admin

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"lockproxy/internal/journal"
	"lockproxy/internal/names"
)

// However many locks there are, only the costliest shapes have labels, and nothing is left out of
// the sums.
func TestShapesAreFew(t *testing.T) {
	cost := func(db int, key string, wait time.Duration) journal.Cost {
		return journal.Cost{Lock: names.Lock{DB: db, Key: key},
			Numbers: journal.Numbers{Acquired: 1, Wait: wait}}
	}
	hour := []journal.Cost{
		cost(0, "order:17", time.Second), cost(0, "order:18", time.Second),
		cost(3, "order:17", 3*time.Second), cost(0, "idle", 0), cost(0, "a little", 1),
		cost(0, "other", 9*time.Second), cost(0, "", 5*time.Second),
	}
	c := &shapesCollector{most: 4, costs: func(within time.Duration) []journal.Cost {
		if within == journal.Window {
			return slices.Clone(hour)
		}
		return slices.Clone(hour[1:])
	}}
	var got []string
	for _, cost := range c.costliest() {
		got = append(got, fmt.Sprint(cost.DB, " ", cost.Key, " ", cost.Acquired, " ", cost.Wait))
	}
	want := []string{"0 other 1 9s", `0 "" 1 5s`, "3 order:* 1 3s", "0 order:* 1 1s",
		"-1 other 2 1ns"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// Names of any bytes and any length make labels that Prometheus accepts, each once.
func TestShapesOfAnyBytes(t *testing.T) {
	keys := []string{"\xff\xfe", `\xff\xfe`, strings.Repeat("a", 1000), strings.Repeat("a", 2000),
		"", `""`, "\x00", "日本語", "{}\"\n\\"}
	c := &shapesCollector{most: 100, costs: func(time.Duration) (list []journal.Cost) {
		for i, key := range keys {
			list = append(list, journal.Cost{Lock: names.Lock{Key: key},
				Numbers: journal.Numbers{Wait: time.Duration(i + 1)}})
		}
		return list
	}}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	if err != nil || len(families) != len(shapeReadings) {
		t.Fatalf("%d metrics, %v", len(families), err)
	}
	for _, m := range families[0].Metric {
		for _, label := range m.Label {
			if len([]rune(label.GetValue())) > maxShapeLabel {
				t.Errorf("a label of %d characters", len(label.GetValue()))
			}
		}
	}
}
