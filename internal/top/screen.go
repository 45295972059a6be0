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
	wants   request // its filter is query's
	picture picture
	at      time.Time // of picture

	top    int    // first line that is shown
	cursor int    // the line that is chosen
	chosen string // its lock
	lines  []line // of the last draw
	back   page   // to return to from pageLock
	typing bool   // the filter
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
	s := &screen{Screen: terminal, watcher: newWatcher(o), query: o.Query,
		wants: request{by: "wait", filter: o.Query.Filter}}

	var goroutines sync.WaitGroup
	events, pictures, wants := make(chan tcell.Event), make(chan picture), make(chan request)
	quit := make(chan struct{})
	defer goroutines.Wait() // after quit has ended the events, and ctx the watch
	defer cancel()
	defer close(quit)
	goroutines.Go(func() { terminal.ChannelEvents(events, quit) }) // ends with quit
	first := s.wants
	goroutines.Go(func() { s.watcher.watch(ctx, first, pictures, wants) }) // ends with ctx

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
			s.wants.filter = s.query.Filter
			select {
			case wants <- s.wants:
			case <-ctx.Done():
			}
		}
		s.draw()
	}
}

// watch fetches a picture at each interval, unless it is paused, and hands it over. When something
// else is wanted it fetches at once.
func (w *watcher) watch(
	ctx context.Context, wants request, out chan<- picture, changes <-chan request,
) {
	tick := time.NewTicker(w.options.Interval)
	defer tick.Stop()
	fetched := make(chan picture, 1)
	fetching, again := false, false
	var found chan<- picture // out while there is something to hand over
	var next picture
	var goroutines sync.WaitGroup
	defer goroutines.Wait()
	fetch := func() {
		fetching, again = true, false
		what := wants
		// ends with ctx at the latest; waited for above
		goroutines.Go(func() { fetched <- w.fetch(ctx, what) })
	}
	fetch()
	for {
		select {
		case <-ctx.Done():
			return
		case change := <-changes:
			before := wants
			wants, before.paused = change, change.paused
			if again = again || wants != before; again && !fetching {
				fetch()
			}
		case next = <-fetched:
			if fetching, found = false, out; again {
				fetch()
			}
		case found <- next:
			found = nil
		case <-tick.C:
			if !fetching && !wants.paused {
				fetch()
			}
		}
	}
}

// handle does what a key means. It returns true to quit.
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
	screenful := max(height-5, 1)
	switch key.Key() {
	case tcell.KeyUp:
		s.move(-1)
	case tcell.KeyDown:
		s.move(1)
	case tcell.KeyPgUp:
		s.move(-screenful)
	case tcell.KeyPgDn:
		s.move(screenful)
	case tcell.KeyHome:
		s.move(-1 << 30)
	case tcell.KeyEnd:
		s.move(1 << 30)
	case tcell.KeyTab:
		s.show((s.wants.page + 1) % pageLock)
	case tcell.KeyEnter:
		if s.wants.page != pageLock && s.cursor < len(s.lines) &&
			!(s.wants.page == pageTop && s.wants.shapes) {
			s.back = s.wants.page
			s.wants.key = s.lines[s.cursor].key
			s.show(pageLock)
		}
	case tcell.KeyEscape:
		if s.wants.page == pageLock {
			s.show(s.back)
			s.chosen = s.wants.key
		} else {
			s.query.Filter = ""
		}
	case tcell.KeyRune:
		return s.handleLetter(key.Rune())
	}
	return false
}

// move chooses another line, or scrolls where none can be chosen.
func (s *screen) move(by int) {
	if s.wants.page == pageLock {
		s.top += by
		return
	}
	s.cursor = max(min(s.cursor+by, len(s.lines)-1), 0)
	if s.chosen = ""; len(s.lines) > 0 {
		s.chosen = s.lines[s.cursor].key
	}
}

// show turns to another page.
func (s *screen) show(p page) {
	s.wants.page = p
	s.restart()
}

// restart goes to the first line, since the lines are about to change.
func (s *screen) restart() { s.top, s.cursor, s.chosen = 0, 0, "" }

func (s *screen) handleLetter(letter rune) (quit bool) {
	switch letter {
	case 'q':
		return true
	case '/':
		s.typing = s.wants.page != pageLock
	case 's':
		s.sortByNext()
	case 'r':
		s.query.Descending = !s.query.Descending
	case 'g':
		s.wants.shapes = !s.wants.shapes
		s.restart()
	case 'k':
		s.move(-1)
	case 'j':
		s.move(1)
	case ' ', 'p':
		s.wants.paused = !s.wants.paused
	}
	return false
}

func (s *screen) sortByNext() {
	if s.wants.page == pageTop {
		s.wants.by = map[string]string{"wait": "hold", "hold": "count", "count": "wait"}[s.wants.by]
	} else {
		next := (slices.Index(survey.Columns, s.query.Sort) + 1) % len(survey.Columns)
		by := survey.By(survey.Columns[next])
		s.query.Sort, s.query.Descending = by.Sort, by.Descending
	}
	s.restart()
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
	s.restart()
}

var (
	bold    = tcell.StyleDefault.Bold(true)
	inverse = tcell.StyleDefault.Reverse(true)
	faint   = tcell.StyleDefault.Dim(true)
	trouble = tcell.StyleDefault.Foreground(tcell.ColorRed).Bold(true)
	waited  = tcell.StyleDefault.Foreground(tcell.ColorYellow)
	ending  = tcell.StyleDefault.Foreground(tcell.ColorRed)
)
