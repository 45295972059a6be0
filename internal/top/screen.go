package top

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gdamore/tcell/v2"

	"lockproxy/internal/survey"
)

// screen is the live view. Its loop is the one goroutine that uses it.
type screen struct {
	tcell.Screen
	watcher *watcher
	query   survey.Query
	picture picture
	at      time.Time // of picture

	top    int  // first row that is shown
	typing bool // the filter
	paused bool
}

// Watch shows the locks on a terminal until its user quits or ctx ends. The terminal is as before
// when it returns.
func Watch(ctx context.Context, o Options, terminal tcell.Screen) error {
	if o.Interval <= 0 {
		o.Interval = time.Second
	}
	if err := terminal.Init(); err != nil {
		return fmt.Errorf("cannot use this terminal: %w", err)
	}
	defer terminal.Fini()
	ctx, cancel := context.WithCancel(ctx)
	s := &screen{Screen: terminal, watcher: newWatcher(o), query: o.Query}

	var running sync.WaitGroup
	events, pictures, pause := make(chan tcell.Event), make(chan picture), make(chan bool)
	quit := make(chan struct{})
	defer running.Wait() // in this order: quit ends the events, ctx the looks
	defer cancel()
	defer close(quit)
	running.Go(func() { terminal.ChannelEvents(events, quit) })  // ends with quit; waited for above
	running.Go(func() { s.watcher.watch(ctx, pictures, pause) }) // ends with ctx; waited for above

	s.draw()
	for {
		select {
		case <-ctx.Done():
			return nil
		case s.picture = <-pictures:
			s.at = time.Now()
		case event, ok := <-events:
			if !ok || s.handle(event) {
				return nil
			}
			select {
			case pause <- s.paused:
			case <-ctx.Done():
			}
		}
		s.draw()
	}
}

// watch looks again and again, unless it is paused, and hands over what it has found.
func (w *watcher) watch(ctx context.Context, out chan<- picture, pause <-chan bool) {
	tick := time.NewTicker(w.options.Interval)
	defer tick.Stop()
	looked := make(chan picture, 1)
	looking, paused := false, false
	var found chan<- picture // out while there is something to hand over
	var next picture
	var running sync.WaitGroup
	defer running.Wait()
	look := func() {
		looking = true
		// ends with ctx at the latest; waited for above
		running.Go(func() { looked <- w.look(ctx) })
	}
	look()
	for {
		select {
		case <-ctx.Done():
			return
		case paused = <-pause:
		case next = <-looked:
			looking, found = false, out
		case found <- next:
			found = nil
		case <-tick.C:
			if !looking && !paused {
				look()
			}
		}
	}
}

// handle is what a key does. It returns true to quit.
func (s *screen) handle(event tcell.Event) (quit bool) {
	key, ok := event.(*tcell.EventKey)
	if !ok {
		if _, resized := event.(*tcell.EventResize); resized {
			s.Sync()
		}
		return false
	}
	if key.Key() == tcell.KeyCtrlC {
		return true
	}
	if s.typing {
		s.typeFilter(key)
		return false
	}
	_, height := s.Size()
	page := max(height-5, 1)
	switch key.Key() {
	case tcell.KeyUp:
		s.top--
	case tcell.KeyDown:
		s.top++
	case tcell.KeyPgUp:
		s.top -= page
	case tcell.KeyPgDn:
		s.top += page
	case tcell.KeyHome:
		s.top = 0
	case tcell.KeyEnd:
		s.top = 1 << 30
	case tcell.KeyEscape:
		s.query.Filter = ""
	case tcell.KeyRune:
		return s.handleLetter(key.Rune())
	}
	return false
}

func (s *screen) handleLetter(letter rune) (quit bool) {
	switch letter {
	case 'q':
		return true
	case '/':
		s.typing = true
	case 's':
		next := (slices.Index(survey.Columns, s.query.Sort) + 1) % len(survey.Columns)
		s.query.Sort, s.top = survey.Columns[next], 0
		// Numbers are looked at for the largest, but for the time that is left.
		s.query.Down = s.query.Sort == survey.ByAge || s.query.Sort == survey.ByWaiters
	case 'r':
		s.query.Down = !s.query.Down
	case 'k':
		s.top--
	case 'j':
		s.top++
	case ' ', 'p':
		s.paused = !s.paused
	}
	return false
}

func (s *screen) typeFilter(key *tcell.EventKey) {
	runes := []rune(s.query.Filter)
	switch key.Key() {
	case tcell.KeyEnter:
		s.typing = false
	case tcell.KeyEscape:
		s.typing, s.query.Filter = false, ""
	case tcell.KeyBackspace, tcell.KeyBackspace2:
		if len(runes) > 0 {
			s.query.Filter = string(runes[:len(runes)-1])
		}
	case tcell.KeyCtrlU:
		s.query.Filter = ""
	case tcell.KeyRune:
		s.query.Filter += string(key.Rune())
	}
	s.top = 0
}

var (
	bold    = tcell.StyleDefault.Bold(true)
	inverse = tcell.StyleDefault.Reverse(true)
	faint   = tcell.StyleDefault.Dim(true)
	trouble = tcell.StyleDefault.Foreground(tcell.ColorRed).Bold(true)
	waited  = tcell.StyleDefault.Foreground(tcell.ColorYellow)
	ending  = tcell.StyleDefault.Foreground(tcell.ColorRed)
)

func (s *screen) draw() {
	s.Clear()
	width, height := s.Size()
	p := s.watcher.view(s.picture, s.query)
	s.line(0, width, s.watcher.options.title(p)+"  "+s.clock(), bold)
	s.line(1, width, s.filterLine(), faint)
	if s.typing {
		s.line(1, width, "filter: "+s.query.Filter+"_", tcell.StyleDefault)
	}
	list := columns(width, p.Rows)
	s.line(2, width, heading(list, s.query), inverse)

	room := max(height-4, 0)
	s.top = max(min(s.top, len(p.Rows)-room), 0)
	full, empty := '█', '·'
	if !s.CanDisplay(full, false) || !s.CanDisplay(empty, false) {
		full, empty = '#', '.'
	}
	for i := range min(room, len(p.Rows)-s.top) {
		r := p.Rows[s.top+i]
		s.line(3+i, width, row(list, r, full, empty), style(r))
	}
	if len(p.Rows) == 0 && p.Complete && p.Err == nil {
		text := "no locks"
		if s.query.Filter != "" {
			text = "no lock matches the filter"
		}
		s.line(4, width, text, faint)
	}
	s.footer(height-1, width, p)
	s.Show()
}

func style(r survey.Row) tcell.Style {
	switch {
	case r.Full > 0 && r.Remaining < r.Full/10:
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
	case s.paused:
		return "paused at " + s.at.Format(time.TimeOnly)
	}
	return s.at.Format(time.TimeOnly)
}

func (s *screen) filterLine() string {
	if s.query.Filter == "" {
		return ""
	}
	return "filter: " + s.query.Filter + "  (Esc clears it)"
}

func (s *screen) footer(y, width int, p picture) {
	keys := "q quit  / filter  s sort  r reverse  space pause  ↑↓ PgUp PgDn scroll"
	text := remark(p)
	if s.at.IsZero() || text == "" {
		s.line(y, width, keys, faint)
		return
	}
	look := faint
	if p.Err != nil {
		look = trouble
	}
	s.line(y, width, text, look)
}

func (s *screen) line(y, width int, text string, look tcell.Style) {
	s.PutStrStyled(0, y, fit(text, width, false), look)
}
