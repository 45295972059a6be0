package top

// The screens are drawn here.

import (
	"slices"
	"strings"
	"time"

	"github.com/gdamore/tcell/v2"

	"lockproxy/internal/survey"
)

func (s *screen) draw() {
	s.Clear()
	width, height := s.Size()
	p := s.watcher.view(s.picture, s.query)
	s.line(0, width, s.watcher.options.title(p)+"  "+s.clock(), bold)
	s.line(1, width, s.subtitle(), faint)
	if s.typing {
		s.line(1, width, "filter: "+s.query.Filter+"_", tcell.StyleDefault)
	}
	heading, empty := "", ""
	heading, s.lines, empty = s.content(p, width)
	s.line(2, width, heading, inverse)
	room := max(height-4, 0)
	s.place(room)
	for i := range min(room, len(s.lines)-s.top) {
		l := s.lines[s.top+i]
		if s.top+i == s.cursor && s.wants.page != pageLock {
			l.style = l.style.Reverse(true)
		}
		s.line(3+i, width, l.text, l.style)
	}
	if len(s.lines) == 0 {
		s.line(4, width, empty, faint)
	}
	s.footer(height-1, width, p)
	s.Show()
}

// place keeps the chosen line where its lock is, and on the screen.
func (s *screen) place(room int) {
	if s.wants.page != pageLock {
		moved := func(l line) bool { return l.key == s.chosen }
		if s.chosen != "" && (s.cursor >= len(s.lines) || s.lines[s.cursor].key != s.chosen) {
			if i := slices.IndexFunc(s.lines, moved); i >= 0 {
				s.cursor = i
			}
		}
		s.cursor = max(min(s.cursor, len(s.lines)-1), 0)
		s.top = max(min(s.top, s.cursor), s.cursor-room+1)
	}
	s.top = max(min(s.top, len(s.lines)-room), 0)
}

// content is what the page shows: its heading, its lines, and a text in their place if there are
// none.
func (s *screen) content(p picture, width int) (heading string, lines []line, empty string) {
	full, blank := '█', '·'
	if s.CharacterSet() != "UTF-8" {
		full, blank = '#', '.'
	}
	switch s.wants.page {
	case pageTop:
		heading, lines = costLines(p.costs, s.query.Filter, width)
		empty = "nothing has happened to locks within the last hour"
	case pageLog:
		heading, lines = eventLines(p.events, s.query.Filter, width)
		empty = "nothing has happened to locks within the last hour"
	case pageLock:
		return survey.Printable(s.wants.key), detailLines(p.detail, full, blank), ""
	default:
		list := columns(width, p.Rows)
		for _, r := range p.Rows {
			lines = append(lines, line{r.Key, row(list, r, full, blank), style(r)})
		}
		heading = tableHeading(list, s.query)
		if p.Complete {
			empty = "no locks"
		}
	}
	switch {
	case p.Err != nil || s.at.IsZero() || p.made != s.wants.page:
		empty = ""
	case s.query.Filter != "":
		empty = "nothing matches the filter"
	}
	return heading, lines, empty
}

func style(r survey.Row) tcell.Style {
	switch {
	case r.Lifetime > 0 && r.Remaining < r.Lifetime/10:
		return ending
	case r.Waiters > 0:
		return waited
	}
	return tcell.StyleDefault
}

func (s *screen) clock() string {
	switch {
	case s.at.IsZero():
		return "connecting"
	case s.wants.paused:
		return "paused at " + s.at.Format(time.TimeOnly)
	}
	return s.at.Format(time.TimeOnly)
}

// subtitle names the page and its filter.
func (s *screen) subtitle() string {
	var text string
	switch s.wants.page {
	case pageTop:
		text = "what locks have cost within the last hour, by " + s.wants.by
		if s.wants.shapes {
			text += ", keys of one shape together"
		}
	case pageLog:
		text = "what happened to locks within the last hour"
	case pageLock:
		return "one lock  (Esc goes back)"
	}
	if s.query.Filter != "" {
		text = strings.TrimSpace(text + "  filter: " + s.query.Filter + "  (Esc clears it)")
	}
	return text
}

// keys explain the keys of each page.
var keys = map[page]string{
	pageLocks: "q quit  Tab next view  Enter this lock  / filter  s sort  r reverse  space pause",
	pageTop:   "q quit  Tab next view  Enter this lock  / filter  s sort  g group  space pause",
	pageLog:   "q quit  Tab next view  Enter this lock  / filter  space pause",
	pageLock:  "q quit  Esc back  space pause",
}

func (s *screen) footer(y, width int, p picture) {
	text := remark(p)
	if s.at.IsZero() || text == "" {
		s.line(y, width, keys[s.wants.page], faint)
		return
	}
	style := faint
	if p.Err != nil {
		style = trouble
	}
	s.line(y, width, text, style)
}

func (s *screen) line(y, width int, text string, style tcell.Style) {
	s.PutStrStyled(0, y, fit(text, width, false), style)
}
