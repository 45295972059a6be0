package top

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/rivo/uniseg"

	"lockproxy/internal/survey"
)

// column is one of the table's.
type column struct {
	by    survey.Column
	title string
	width int
	right bool // aligned
}

// Narrowest and widest that the columns with names become.
const (
	minKey, maxOwner, maxNoted, maxClient = 12, 20, 40, 21
	barWidth                              = 10
)

// columns are those that fit into width. The least important ones are dropped, and the key gets the
// room that is left.
func columns(width int, rows []survey.Row) []column {
	owner, client := len("OWNER"), len("CLIENT")
	for _, r := range rows {
		widest := maxOwner
		if r.Note != "" {
			widest = maxNoted
		}
		owner = max(owner, min(uniseg.StringWidth(ownerText(r)), widest))
		client = max(client, uniseg.StringWidth(survey.Printable(r.Client)))
	}
	list := []column{
		{survey.ByKey, "KEY", 0, false},
		{survey.ByOwner, "OWNER", owner, false},
		{survey.ByClient, "CLIENT", min(client, maxClient), false},
		{survey.ByAge, "HELD", 8, true},
		{survey.ByRemaining, "REMAINING", barWidth + 9, true},
		{survey.ByWaiters, "WAIT", 5, true},
	}
	// the least important first
	for _, drop := range []survey.Column{survey.ByClient, survey.ByOwner, survey.ByAge,
		survey.ByRemaining} {
		if left(list, width) >= minKey {
			break
		}
		for i, c := range list {
			if c.by == drop {
				list = append(list[:i], list[i+1:]...)
				break
			}
		}
	}
	list[0].width = max(left(list, width), 1)
	return list
}

// left is the width for the key next to all others, each with a blank before it.
func left(list []column, width int) int {
	for _, c := range list[1:] {
		width -= c.width + 1
	}
	return width
}

// cell is a lock's text in a column, as wide as the column.
func cell(c column, r survey.Row, full, empty rune) string {
	text := ""
	switch c.by {
	case survey.ByKey:
		text = survey.Printable(r.Key)
	case survey.ByOwner:
		text = ownerText(r)
	case survey.ByClient:
		text = survey.Printable(r.Client)
	case survey.ByAge:
		if r.Age >= 0 {
			text = Span(r.Age)
		}
	case survey.ByRemaining:
		text = fmt.Sprintf("%s %8s", bar(r, full, empty), Span(r.Remaining))
	case survey.ByWaiters:
		if text = fmt.Sprint(r.Waiters); r.Elsewhere > 0 {
			text += fmt.Sprintf("+%d", r.Elsewhere)
		}
	}
	return fit(text, c.width, c.right)
}

// ownerText is the owner and its note, a foreign client's library, and how many other holders there
// are.
func ownerText(r survey.Row) string {
	text := strings.TrimSpace(survey.Printable(r.Whose()) + quoted(r.Note))
	if r.Library != "" {
		text = strings.TrimSpace(text + " (" + survey.Printable(r.Library) + ")")
	}
	if r.Holders > 1 {
		text = strings.TrimSpace(fmt.Sprintf("%s +%d", text, r.Holders-1))
	}
	return text
}

func bar(r survey.Row, full, empty rune) string {
	part := 0
	if r.Lifetime > 0 {
		part = int(math.Round(barWidth * r.Remaining.Seconds() / r.Lifetime.Seconds()))
	}
	part = min(max(part, 0), barWidth)
	return strings.Repeat(string(full), part) + strings.Repeat(string(empty), barWidth-part)
}

// fit makes text just as wide as width, cutting it with a mark or filling it with blanks.
func fit(text string, width int, right bool) string {
	have := uniseg.StringWidth(text)
	if have > width {
		var b strings.Builder
		room, state := width-1, -1
		for rest := text; rest != ""; {
			var cluster string
			var w int
			cluster, rest, w, state = uniseg.FirstGraphemeClusterInString(rest, state)
			if w > room {
				break
			}
			room -= w
			b.WriteString(cluster)
		}
		return b.String() + "…" + strings.Repeat(" ", max(room, 0))
	}
	blanks := strings.Repeat(" ", width-have)
	if right {
		return blanks + text
	}
	return text + blanks
}

// Span writes a time in few letters: 4.2s, 75s, 12m05s, 3h20m, 5d02h.
func Span(d time.Duration) string {
	s := int(d.Seconds())
	switch {
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case s < 100:
		return fmt.Sprintf("%ds", s)
	case s < 3600:
		return fmt.Sprintf("%dm%02ds", s/60, s%60)
	case s < 24*3600:
		return fmt.Sprintf("%dh%02dm", s/3600, s/60%60)
	}
	return fmt.Sprintf("%dd%02dh", s/86400, s/3600%24)
}

// row is one line of the table.
func row(list []column, r survey.Row, full, empty rune) string {
	parts := make([]string, len(list))
	for i, c := range list {
		parts[i] = cell(c, r, full, empty)
	}
	return strings.Join(parts, " ")
}

// tableHeading is the line above the rows. The mark says what they are sorted by.
func tableHeading(list []column, q survey.Query) string {
	parts := make([]string, len(list))
	for i, c := range list {
		title := c.title
		switch {
		case c.by == q.Sort && q.Descending:
			title += "▼"
		case c.by == q.Sort:
			title += "▲"
		}
		parts[i] = fit(title, c.width, c.right)
	}
	return strings.Join(parts, " ")
}
