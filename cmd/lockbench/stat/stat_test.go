package stat

import (
	"math"
	"testing"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{
		{[]float64{7}, 7},
		{[]float64{9, 1, 5}, 5},
		{[]float64{4, 1, 3, 2}, 2.5},
	} {
		if got := Median(c.values); got != c.want {
			t.Errorf("median of %v: %v, want %v", c.values, got, c.want)
		}
	}
	unsorted := []float64{3, 1, 2}
	if Median(unsorted); unsorted[0] != 3 {
		t.Error("Median has sorted its caller's values")
	}
}

func TestSpread(t *testing.T) {
	for _, c := range []struct {
		rounds []float64
		want   Spread
		text   string
	}{
		{nil, Spread{}, "–"},
		{[]float64{0.5}, Spread{Median: 0.5, Least: 0.5, Most: 0.5, Rounds: 1}, "0.50"},
		{[]float64{3, 1, 2}, Spread{Median: 2, Least: 1, Most: 3, Rounds: 3}, "2.00 (1.00–3.00)"},
		{[]float64{Failed, 4, 2}, Spread{Median: 3, Least: 2, Most: 4, Rounds: 2, Failed: 1},
			"3.00 (2.00–4.00), 1 failed"},
		{[]float64{-0.001, -5, 10}, Spread{Median: -0.001, Least: -5, Most: 10, Rounds: 3},
			"0.00 (-5.00–10.00)"},
		{[]float64{Failed, Failed}, Spread{Failed: 2}, "failed"},
	} {
		got := Of(c.rounds)
		if got != c.want {
			t.Errorf("%v: %+v, want %+v", c.rounds, got, c.want)
		}
		if text := got.Format("%.2f"); text != c.text {
			t.Errorf("%v: %q, want %q", c.rounds, text, c.text)
		}
	}
}

func TestRatios(t *testing.T) {
	got := Ratios([]float64{1, Failed, 3, 4, 0}, []float64{2, 2, Failed, 0, 5})
	if got[0] != 0.5 || !math.IsNaN(got[1]) || !math.IsNaN(got[2]) || !math.IsNaN(got[3]) ||
		got[4] != 0 {
		t.Errorf("ratios: %v", got)
	}
}
