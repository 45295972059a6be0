package chart

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"lockproxy/cmd/lockbench/stat"
)

func spreads(medians ...float64) []stat.Spread {
	list := make([]stat.Spread, len(medians))
	for i, m := range medians {
		list[i] = stat.Of([]float64{m * 0.9, m, m * 1.2})
	}
	return list
}

// texts are those of a figure, which must be whole XML.
func texts(t *testing.T, svg []byte) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	for d := xml.NewDecoder(strings.NewReader(string(svg))); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatalf("not XML: %v", err)
		}
		if data, ok := token.(xml.CharData); ok && strings.TrimSpace(string(data)) != "" {
			found[strings.TrimSpace(string(data))] = true
		}
	}
}

func TestBars(t *testing.T) {
	svg := Bars{
		Title: "A title", Unit: "ratio to direct", Verb: "%.2f",
		Groups: []string{"P=1\n64 KB", "P=16"}, Mark: 1,
		Series: []Series{{"lockproxy", Blue, spreads(1.1, 0.65)},
			{"HAProxy", Orange, []stat.Spread{stat.Of([]float64{0.5}), {Failed: 3}}}},
	}.SVG()
	got := texts(t, svg)
	for _, want := range []string{"A title", "ratio to direct", "P=1", "64 KB", "P=16", "lockproxy",
		"HAProxy", "1.10", "0.65", "0.50", "–"} {
		if !got[want] {
			t.Errorf("no %q in the figure", want)
		}
	}
}

func TestLines(t *testing.T) {
	svg := Lines{
		Title: "Throughput", Unit: "commands/s", Across: "clients", At: []float64{1, 10, 1000},
		Series: []Series{{"direct", Plain, spreads(25000, 45000, 40000)},
			{"lockproxy", Blue, append(spreads(12000, 20000), stat.Spread{})}},
	}.SVG()
	got := texts(t, svg)
	for _, want := range []string{"Throughput", "commands/s", "clients", "1", "10", "1,000",
		"direct", "lockproxy", "20,000"} {
		if !got[want] {
			t.Errorf("no %q in the figure", want)
		}
	}
}

func TestLogBars(t *testing.T) {
	svg := Bars{Unit: "µs", Verb: "%.0f", Log: true, Groups: []string{"p50"},
		Series: []Series{{"direct", Plain, spreads(70)},
			{"lockproxy", Blue, spreads(200000)}}}.SVG()
	got := texts(t, svg)
	for _, want := range []string{"10", "100", "1,000", "10,000", "100,000", "70", "200000"} {
		if !got[want] {
			t.Errorf("no %q in the figure", want)
		}
	}
}

func TestRows(t *testing.T) {
	svg := Rows{Title: "Waits", Unit: "ms", Verb: "%.1f", Log: true, Rows: []Row{
		{"a long name", Blue, spreads(45.2)[0]}, {"another", Plain, spreads(0.5)[0]},
		{"failed", Green, stat.Spread{Failed: 1}},
	}}.SVG()
	got := texts(t, svg)
	for _, want := range []string{"Waits", "ms", "a long name", "another", "failed", "45.2", "0.5",
		"–", "0.1", "1", "10"} {
		if !got[want] {
			t.Errorf("no %q in the figure", want)
		}
	}
}

func TestTextsAreEscaped(t *testing.T) {
	svg := Bars{Title: "A <title> & more", Unit: "ms", Verb: "%.2f", Groups: []string{"P=1"},
		Series: []Series{{"one", Blue, spreads(1)}, {"two", Green, spreads(2)}}}.SVG()
	if !texts(t, svg)["A <title> & more"] {
		t.Error("no title in the figure")
	}
}

func TestNothingToDraw(t *testing.T) {
	none := []Series{{"lockproxy", Blue, make([]stat.Spread, 1)}}
	for _, svg := range [][]byte{
		Bars{Groups: []string{"a"}, Series: none}.SVG(),
		Bars{Groups: []string{"a"}, Series: none, Log: true}.SVG(),
		Rows{Rows: []Row{{Name: "a"}}}.SVG(),
		Lines{At: []float64{1}, Series: none}.SVG(),
	} {
		texts(t, svg)
		if strings.Contains(string(svg), "NaN") || strings.Contains(string(svg), "Inf") {
			t.Errorf("no place: %s", svg)
		}
	}
}

func TestGroup(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.01: "0.01", 999: "999", 1000: "1,000",
		1234567: "1,234,567"} {
		if got := group(v); got != want {
			t.Errorf("%v: %q, want %q", v, got, want)
		}
	}
}

func TestRoundTicks(t *testing.T) {
	for _, c := range []struct {
		high float64
		want string
	}{
		{1.35, "0.0 0.2 0.4 0.6 0.8 1.0 1.2"},
		{3, "0.0 0.5 1.0 1.5 2.0 2.5 3.0"},
		{0.07, "0.00 0.01 0.02 0.03 0.04 0.05 0.06 0.07"},
		{57000, "0 10,000 20,000 30,000 40,000 50,000"},
		{12, "0 2 4 6 8 10 12"},
	} {
		var labels []string
		for _, tick := range round(c.high) {
			labels = append(labels, tick.label)
		}
		if got := strings.Join(labels, " "); got != c.want {
			t.Errorf("to %v: %s, want %s", c.high, got, c.want)
		}
	}
}
