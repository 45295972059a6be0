package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
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

// Every relative link in a page of the repository leads to a file that is there, and its anchor to
// a heading.
func TestLinksResolve(t *testing.T) {
	const root = "../.."
	list, err := exec.Command("git", "-C", root, "ls-files", "-z", "--cached", "--others",
		"--exclude-standard", "*.md").Output()
	if err != nil {
		t.Fatal(err)
	}
	links := 0
	for name := range bytes.SplitSeq(bytes.TrimRight(list, "\x00"), []byte{0}) {
		page := filepath.Join(root, string(name))
		text, err := os.ReadFile(page)
		if err != nil {
			t.Error(err)
			continue
		}
		prose := markdownCode.ReplaceAllString(string(text), "`code`")
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
