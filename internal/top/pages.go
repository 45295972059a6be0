package top

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/gdamore/tcell/v2"

	"lockproxy/internal/survey"
)

// page is what the screen shows.
type page int

const (
	pageLocks page = iota // that are held
	pageTop               // LOCKTOP
	pageLog               // LOCKLOG
	pageLock              // one lock
)

// request says what to show.
type request struct {
	paused bool
	page   page
	filter string
	by     string // of pageTop: what it is sorted by
	shapes bool   // of pageTop: whether locks with keys of one shape are one line
	key    string // of pageLock
}

// line is one of a page.
type line struct {
	key   string // the lock that it is about
	text  string
	style tcell.Style
}

// head is a column of the pages other than pageLocks. One has width 0, and gets the rest.
type head struct {
	title string
	width int
	right bool
}

var topHeads = []head{{"KEY", 0, false}, {"WAITED", 8, true}, {"WAITS", 7, true},
	{"LONGEST", 8, true}, {"HELD", 8, true}, {"ACQUIRED", 9, true}, {"REFUSED", 8, true},
	{"WAITED FOR", 30, false}}

var logHeads = []head{{"TIME", 8, false}, {"EVENT", 12, false}, {"KEY", 0, false},
	{"WHO", 32, false}, {"WAITED", 8, true}, {"HELD", 8, true}}

// costLines are those of LOCKTOP whose key or holders match the filter.
func costLines(list []cost, filter string, width int) (heading string, lines []line) {
	heads := placed(topHeads, width)
	for _, c := range list {
		key := survey.Printable(c.key)
		if !matches(filter, key, c.blame) {
			continue
		}
		lines = append(lines, line{c.key, joined(heads, key, Span(c.wait), fmt.Sprint(c.waits),
			Span(c.longest), Span(c.hold), fmt.Sprint(c.acquired), fmt.Sprint(c.refused), c.blame),
			tcell.StyleDefault})
	}
	return titles(heads), lines
}

// eventLines are those of LOCKLOG that match the filter.
func eventLines(list []event, filter string, width int) (heading string, lines []line) {
	heads := placed(logHeads, width)
	for _, e := range list {
		key := survey.Printable(e.key)
		if !matches(filter, key, e.who, e.what) {
			continue
		}
		wait, hold := "", ""
		if e.wait > 0 {
			wait = Span(e.wait)
		}
		if e.what != "acquired" {
			hold = Span(e.hold)
		}
		lines = append(lines, line{e.key, joined(heads, e.at.Format(time.TimeOnly), e.what, key,
			e.who, wait, hold), tcell.StyleDefault})
	}
	return titles(heads), lines
}

// timelineWidth is the width of the longest bar in the view of a lock.
const timelineWidth = 30

// detailLines are the view of one lock: its holders, its queue, and for how long its last holders
// have waited and held it.
func detailLines(d detail, full, empty rune) (lines []line) {
	add := func(style tcell.Style, text string) { lines = append(lines, line{"", text, style}) }
	section := func(title string, list []string) {
		add(bold, title)
		for i, text := range list {
			add(tcell.StyleDefault, fmt.Sprintf("%3d  %s", i+1, text))
		}
		if len(list) == 0 {
			add(faint, "     nobody")
		}
		add(faint, "")
	}
	section("HOLDER", d.holders)
	section("QUEUE", d.queue)
	longest := time.Duration(1)
	for _, e := range d.events {
		longest = max(longest, e.hold, e.wait)
	}
	bar := func(d time.Duration, mark rune) string {
		return strings.Repeat(string(mark), int(timelineWidth*d.Seconds()/longest.Seconds()))
	}
	add(bold, fmt.Sprintf("LAST HOUR  (%c waited, %c held)", empty, full))
	for _, e := range d.events {
		lasted := ""
		if d := cmp.Or(e.wait, e.hold); d > 0 {
			lasted = Span(d)
		}
		add(tcell.StyleDefault, fmt.Sprintf("  %s  %s %s %s %s%s", e.at.Format(time.TimeOnly),
			fit(e.what, 12, false), fit(e.who, 28, false), fit(lasted, 7, true),
			bar(e.wait, empty), bar(e.hold, full)))
	}
	return lines
}

func matches(filter string, texts ...string) bool {
	filter = strings.ToLower(filter)
	for _, text := range texts {
		if strings.Contains(strings.ToLower(text), filter) {
			return true
		}
	}
	return false
}

// placed are the columns that fit into a width; the last ones are dropped first.
func placed(heads []head, width int) []head {
	used, rest := 0, 0
	for i, h := range heads {
		used += h.width + 1
		if h.width == 0 {
			rest = i
		}
	}
	for len(heads) > rest+1 && used+minKey > width {
		used -= heads[len(heads)-1].width + 1
		heads = heads[:len(heads)-1]
	}
	heads = append([]head{}, heads...)
	heads[rest].width = max(width-used+1, 1)
	return heads
}

func joined(heads []head, cells ...string) string {
	parts := make([]string, len(heads))
	for i, h := range heads {
		parts[i] = fit(cells[i], h.width, h.right)
	}
	return strings.Join(parts, " ")
}

func titles(heads []head) string {
	parts := make([]string, len(heads))
	for i, h := range heads {
		parts[i] = fit(h.title, h.width, h.right)
	}
	return strings.Join(parts, " ")
}
