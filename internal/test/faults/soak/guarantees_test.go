//go:build linux

package soak

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../../../.."

// docs/guarantees.md names only tests that exist, and has a line for each fault.
func TestGuaranteesAreShown(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join(root, "docs/guarantees.md"))
	if err != nil {
		t.Fatal(err)
	}
	page, tests := string(raw), testsThere(t)
	for _, name := range regexp.MustCompile(`\bTest[A-Z]\w+`).FindAllString(page, -1) {
		if !tests[name] {
			t.Errorf("docs/guarantees.md names %s, which is not there", name)
		}
	}
	for name := range tests {
		if notPromised := strings.HasPrefix(name, "TestNotPromised"); notPromised &&
			!strings.Contains(page, "`"+name+"`") {
			t.Errorf("docs/guarantees.md does not name %s", name)
		}
	}

	_, table, _ := strings.Cut(page, "## Faults")
	table, _, _ = strings.Cut(table, "## What is not promised")
	rows := map[string]bool{}
	link := ""
	for _, line := range strings.Split(table, "\n") {
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		cell := strings.Split(line, "|")[1]
		for _, quoted := range regexp.MustCompile("`([^`]*)`").FindAllStringSubmatch(cell, -1) {
			name := quoted[1]
			if i := strings.LastIndex(name, " link "); i >= 0 {
				link = name[:i+len(" link ")]
			}
			if rows[name] = true; !Known(name) { // as in `upstream link cut`, `one-way`
				rows[link+name] = true
				name = link + name
			}
			if !Known(name) {
				t.Errorf("docs/guarantees.md has a line for %q, which is not a fault", name)
			}
		}
	}
	for _, kind := range Kinds() {
		if !rows[kind] {
			t.Errorf("docs/guarantees.md has no line for the fault %q", kind)
		}
	}
}

// testsThere are the names of all tests in the module.
func testsThere(t *testing.T) map[string]bool {
	names := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`)
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, match := range declared.FindAllStringSubmatch(string(text), -1) {
			names[match[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
