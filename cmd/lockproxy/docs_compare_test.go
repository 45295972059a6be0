//go:build pages

package main

import (
	"regexp"
	"strings"
)

// compare looks whether lines are what the page shows, but for what differs each time.
func (r *reader) compare(s step, printed []string) {
	r.t.Helper()
	ok := len(printed) == len(s.shown)
	for i := 0; ok && i < len(printed); i++ {
		ok = r.alike(r.own(s.shown[i]), printed[i])
	}
	if !ok {
		r.t.Errorf("line %d: %s\nprints:\n%s\nand the page shows:\n%s", s.line, s.command,
			strings.Join(printed, "\n"), strings.Join(s.shown, "\n"))
	}
}

// changing is a thing that is another each time: as pages show it, and what may be printed for it.
type changing struct{ shown, printed *regexp.Regexp }

func changes(shown, printed string) changing {
	return changing{regexp.MustCompile(shown), regexp.MustCompile(printed)}
}

var (
	shownToken = changes(`\b1[67]\d{14}\b`, `\d{16}`)
	others     = []changing{
		changes(`\b1[67]\d{11}\b`, `\d{13}`), // Unix time, ms
		changes(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z`, `\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z`),
		changes(`127\.0\.0\.1:5\d{4}\b`, `127\.0\.0\.1:\d+`), // a client's port
		changes(`host:4711:(\w+):[0-9a-f]{16}`,
			`[^ "]+:\d+:\w+:[0-9a-f]{16}`), // the owner's name of lockproxy run
		changes(`\b\d+(?:\.\d+)?(?:µs|ms)`, `\d+(?:\.\d+)?(?:µs|ms|s)`), // how long it took
		changes(`"remaining_ms" => \(integer\) \d+`, `"remaining_ms" => \(integer\) \d+`),
		changes(`"held_ms" => \(integer\) \d+`, `"held_ms" => \(integer\) \d+`),
		changes(`Redis \d+\.\d+\.\d+`, `Redis \d+\.\d+\.\d+`),
		changes(`…`, `.*`),
	}
)

// next finds the first changing thing in a line.
func next(line string) (found changing, from, to int) {
	from = -1
	for _, c := range append([]changing{shownToken}, others...) {
		if at := c.shown.FindStringIndex(line); at != nil && (from < 0 || at[0] < from) {
			found, from, to = c, at[0], at[1]
		}
	}
	return found, from, to
}

// alike compares one line. What a page shows as a token must be the same token wherever the page
// shows it.
func (r *reader) alike(shown, printed string) bool {
	pattern, rest := "^", shown
	var tokens []string
	for {
		c, from, to := next(rest)
		if from < 0 {
			break
		}
		pattern += regexp.QuoteMeta(rest[:from])
		if c == shownToken {
			tokens = append(tokens, rest[from:to])
			pattern += "(" + c.printed.String() + ")"
		} else {
			pattern += "(?:" + c.printed.String() + ")"
		}
		rest = rest[to:]
	}
	found := regexp.MustCompile(pattern + regexp.QuoteMeta(rest) + "$").FindStringSubmatch(printed)
	if found == nil {
		return false
	}
	for i, token := range tokens {
		if known, ok := r.tokens[token]; ok && known != found[i+1] {
			return false
		}
		r.tokens[token] = found[i+1]
	}
	return true
}
