package survey

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"lockproxy/lockcmd/lockinfo"
)

// Row is one lock to be shown.
type Row struct {
	lockinfo.Info
	Lifetime time.Duration // that Remaining is the rest of
	Free     bool          // clients wait for it, and nobody had it when it was inspected
}

// Query says what is to be shown.
type Query struct {
	Filter     string // part of the name, the owner or the client; case doesn't matter
	Sort       Column
	Descending bool // the largest first
	Limit      int  // rows; 0 is all
}

// Column is a column by which rows are sorted.
type Column string

const (
	ByKey       Column = "key"
	ByOwner     Column = "owner"
	ByClient    Column = "client"
	ByAge       Column = "held"
	ByRemaining Column = "remaining"
	ByWaiters   Column = "waiters"
)

// Columns are all columns by which rows can be sorted, in the order in which they are shown.
var Columns = []Column{ByKey, ByOwner, ByClient, ByAge, ByRemaining, ByWaiters}

// View is what a Query shows.
type View struct {
	Rows      []Row
	Matching  int       // rows without the limit
	Total     int       // locks there are, as far as they have been found
	Complete  bool      // every database has been scanned to its end once
	Truncated bool      // there are more than are followed
	Err       error     // why the last Step was not complete
	At        time.Time // when the last Step ended
}

// By is the Query that sorts by a column, the most important rows first: those with the largest
// numbers, or with the least time left.
func By(c Column) Query { return Query{Sort: c, Descending: c == ByAge || c == ByWaiters} }

// View shows the locks as of now.
func (s *Survey) View(q Query, now time.Time) View {
	s.mu.Lock()
	rows := s.current(now)
	v := View{Total: len(rows), Complete: true, Truncated: s.truncated, Err: s.err, At: s.at}
	for _, sc := range s.scans {
		v.Complete = v.Complete && sc.rounds > 0
	}
	s.mu.Unlock()
	if q.Filter != "" {
		part := strings.ToLower(q.Filter)
		rows = slices.DeleteFunc(rows, func(r Row) bool { return !r.has(part) })
	}
	v.Matching = len(rows)
	slices.SortStableFunc(rows, func(a, b Row) int {
		if q.Descending {
			a, b = b, a
		}
		return q.Sort.compare(a, b)
	})
	if q.Limit > 0 && len(rows) > q.Limit {
		rows = rows[:q.Limit]
	}
	v.Rows = rows
	return v
}

func (r *Row) has(part string) bool {
	return strings.Contains(strings.ToLower(Printable(r.Key)), part) ||
		strings.Contains(strings.ToLower(Printable(r.Whose())), part) ||
		strings.Contains(r.Client, part)
}

func (c Column) compare(a, b Row) int {
	switch c {
	case ByOwner:
		return cmp.Compare(a.Whose(), b.Whose())
	case ByClient:
		return cmp.Compare(a.Client, b.Client)
	case ByAge:
		return cmp.Compare(a.Age, b.Age)
	case ByRemaining:
		return cmp.Compare(a.Remaining, b.Remaining)
	case ByWaiters:
		return cmp.Or(cmp.Compare(a.Waiters+a.Elsewhere, b.Waiters+b.Elsewhere),
			cmp.Compare(a.OldestWait, b.OldestWait))
	}
	return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.DB, b.DB))
}

// Printable shows a name of any bytes in one line. Characters that can't be printed are escaped as
// redis-cli does.
func Printable(name string) string {
	plain := true
	for _, r := range name {
		if r == utf8.RuneError || r == '\\' || !unicode.IsPrint(r) {
			plain = false
			break
		}
	}
	if plain {
		return name
	}
	var b strings.Builder
	for i := 0; i < len(name); {
		r, size := utf8.DecodeRuneInString(name[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, name[i])
		case r == '\\':
			b.WriteString(`\\`)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case !unicode.IsPrint(r) && r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, r)
		case !unicode.IsPrint(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
		i += size
	}
	return b.String()
}
