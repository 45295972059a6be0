package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

var (
	markdownLink = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	markdownCode = regexp.MustCompile("(?ms)^```.*?^```|`[^`\n]*`")
	heading      = regexp.MustCompile(`(?m)^#+ +(.*)$`)
	notInAnchor  = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// anchors are what a page's headings can be linked by, as forges make them.
func anchors(text string) map[string]bool {
	known := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		name := strings.ToLower(notInAnchor.ReplaceAllString(m[1], ""))
		known[strings.ReplaceAll(name, " ", "-")] = true
	}
	return known
}

const repository = "../.."

// everyPage returns all Markdown in the repository, by its name there.
func everyPage(t *testing.T) map[string]string {
	t.Helper()
	list, err := exec.Command("git", "-C", repository, "ls-files", "-z", "--cached", "--others",
		"--exclude-standard", "*.md").Output()
	if err != nil {
		t.Fatal(err)
	}
	pages := map[string]string{}
	for name := range bytes.SplitSeq(bytes.TrimRight(list, "\x00"), []byte{0}) {
		text, err := os.ReadFile(filepath.Join(repository, string(name)))
		if err != nil {
			t.Error(err)
		}
		pages[string(name)] = string(text)
	}
	return pages
}

// Every relative link in a page of the repository leads to a file that is there, and its anchor to
// a heading.
func TestLinksResolve(t *testing.T) {
	links := 0
	for name, text := range everyPage(t) {
		page := filepath.Join(repository, name)
		prose := markdownCode.ReplaceAllString(text, "`code`")
		for _, m := range markdownLink.FindAllStringSubmatch(prose, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			links++
			path, anchor, _ := strings.Cut(m[1], "#")
			target := page
			if path != "" {
				target = filepath.Join(filepath.Dir(page), path)
			}
			text, err := os.ReadFile(target)
			if info, statErr := os.Stat(target); statErr == nil && info.IsDir() {
				err = nil
			}
			if err != nil {
				t.Errorf("%s: %s: %v", name, m[1], err)
			} else if anchor != "" && !anchors(string(text))[anchor] {
				t.Errorf("%s: %s: no such heading", name, m[1])
			}
		}
	}
	if links < 80 {
		t.Errorf("only %d links", links)
	}
}

var (
	fenced = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	// unbreakable lines are rows of tables, pictures, headings, usages of commands, and single words
	// such as addresses.
	unbreakable = regexp.MustCompile(`^(\||!\[|#|    [A-Z]{4,} | *(- |\d+\. )?\S+$)`)
)

// Lines of prose can be read in a terminal, and reviewed. Programs print what they print.
func TestProseKeepsTo100Columns(t *testing.T) {
	for name, text := range everyPage(t) {
		text = fenced.ReplaceAllStringFunc(text, func(block string) string {
			return strings.Repeat("\n", strings.Count(block, "\n"))
		})
		for i, line := range strings.Split(text, "\n") {
			if n := utf8.RuneCountInString(line); n > 100 && !unbreakable.MatchString(line) {
				t.Errorf("%s:%d has %d columns", name, i+1, n)
			}
		}
	}
}
