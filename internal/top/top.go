package top

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/survey"
)

// Options says what is shown.
type Options struct {
	Client   *redis.Client // of a lockproxy
	Addr     string        // its name, for people
	DB       int           // the client's database, for people
	Query    survey.Query
	Interval time.Duration // between two pictures; 0 is a second

	// Explain adds to an error of Client what is known of its cause; nil does nothing.
	Explain func(context.Context, error) error
}

// budget is lower than the live page's: for LOCKSCAN the proxy asks about each name that it finds.
var budget = survey.Budget{Scan: 5000, Inspect: 500}

// stepTimeout bounds one fetch.
const stepTimeout = 5 * time.Second

// picture is the result of one fetch.
type picture struct {
	survey.View
	made     page // it has the costs, events or detail of this one
	costs    []cost
	events   []event
	detail   detail
	failed   error // why it has not
	why      error // why nothing could be asked, explained
	numbers  map[string]string
	acquired float64 // locks a second since the last picture; negative if unknown
}

// watcher follows a lockproxy. fetch is for one goroutine at a time, view for any.
type watcher struct {
	options Options
	source  proxySource
	survey  *survey.Survey
	last    float64 // acquisitions
	lastAt  time.Time
}

func newWatcher(o Options) *watcher {
	source := proxySource{o.Client}
	return &watcher{options: o, source: source, survey: survey.New(source, o.DB, budget)}
}

// fetch asks the lockproxy for what is wanted. For the list of locks it goes a step further.
func (w *watcher) fetch(ctx context.Context, wants request) picture {
	p := w.ask(ctx, wants)
	if err := w.view(p, w.options.Query).Err; err != nil && w.options.Explain != nil {
		ctx, cancel := context.WithTimeout(ctx, stepTimeout)
		defer cancel()
		p.why = w.options.Explain(ctx, err)
	}
	return p
}

func (w *watcher) ask(ctx context.Context, wants request) picture {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	p := picture{made: wants.page, acquired: -1}
	switch wants.page {
	case pageTop:
		p.costs, p.failed = w.source.costs(ctx, wants.by, wants.shapes)
	case pageLog:
		p.events, p.failed = w.source.events(ctx)
	case pageLock:
		p.detail, p.failed = w.source.lock(ctx, wants.key)
	default:
		w.survey.Step(ctx)
		w.survey.Find(ctx, wants.filter)
	}
	p.numbers = w.source.numbers(ctx)
	if total, err := strconv.ParseFloat(p.numbers["locks_acquired"], 64); err == nil {
		now := time.Now()
		if !w.lastAt.IsZero() && total >= w.last {
			p.acquired = (total - w.last) / now.Sub(w.lastAt).Seconds()
		}
		w.last, w.lastAt = total, now
	}
	return p
}

// view adds to a picture the locks that a query shows now.
func (w *watcher) view(p picture, q survey.Query) picture {
	p.View = w.survey.View(q, time.Now())
	if p.made != pageLocks {
		p.Err, p.Complete, p.Matching = p.failed, true, p.Total
	}
	if p.Err != nil {
		p.Err = cmp.Or(p.why, p.Err)
	}
	return p
}

// title is the first line.
func (o Options) title(p picture) string {
	parts := []string{"lockproxy " + o.Addr}
	if o.DB != 0 {
		parts = append(parts, fmt.Sprintf("db %d", o.DB))
	}
	parts = append(parts, plural(p.Total, "lock"))
	if n := p.numbers["lock_waiters"]; n != "" {
		parts = append(parts, n+" waiting")
	}
	if p.acquired >= 0 {
		parts = append(parts, fmt.Sprintf("%.1f acquired/s", p.acquired))
	}
	if n := p.numbers["connected_clients"]; n != "" {
		parts = append(parts, n+" clients")
	}
	if n, _ := strconv.Atoi(p.numbers["lock_deadlocks"]); n > 0 {
		parts = append(parts, plural(n, "deadlock"))
	}
	if p.numbers["upstream_status"] == "down" {
		parts = append(parts, "UPSTREAM DOWN")
	}
	return strings.Join(parts, "  ")
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// remark says what the table doesn't show, or "".
func remark(p picture) string {
	var parts []string
	if p.Err != nil {
		parts = append(parts, survey.Printable(p.Err.Error()))
	}
	if p.Matching < p.Total {
		parts = append(parts, fmt.Sprintf("%d match", p.Matching))
	}
	if p.Truncated {
		parts = append(parts, "more locks than can be followed")
	}
	if !p.Complete && p.Err == nil {
		parts = append(parts, "still looking")
	}
	return strings.Join(parts, "; ")
}

const (
	// snapshotWidth is how wide a snapshot is.
	snapshotWidth = 110
	// snapshotPatience bounds how long a snapshot looks for locks.
	snapshotPatience = 20 * time.Second
)

// Snapshot writes the locks that are held now, after one scan of the whole database, or as far as
// it gets in 20 s. The error says why it couldn't look.
func Snapshot(ctx context.Context, o Options, out io.Writer) error {
	w := newWatcher(o)
	wants := request{filter: o.Query.Filter}
	p := w.fetch(ctx, wants)
	for over := time.Now().Add(snapshotPatience); ; p = w.fetch(ctx, wants) {
		p = w.view(p, o.Query)
		if p.Err != nil {
			return p.Err
		}
		if p.Complete || time.Now().After(over) {
			break
		}
	}
	list := columns(snapshotWidth, p.Rows)
	p.acquired = -1
	lines := []string{o.title(p), tableHeading(list, o.Query)}
	for _, r := range p.Rows {
		lines = append(lines, row(list, r, '#', '.'))
	}
	if text := remark(p); text != "" {
		lines = append(lines, "("+text+")")
	}
	for _, line := range lines {
		if _, err := fmt.Fprintln(out, strings.TrimRight(line, " ")); err != nil {
			return err
		}
	}
	return nil
}
