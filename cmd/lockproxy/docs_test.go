package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"lockproxy/lockcmd/syntax"
)

// pages returns the README and all of docs, by name. In them a fenced block "console" is a session
// in one shell, "console background" is a program that goes on, and "console not-run" is not run,
// as is no block of another kind.
func pages(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(files) < 10 {
		t.Fatalf("only %d pages in docs, %v", len(files), err)
	}
	texts := map[string]string{}
	for _, file := range append(files, "../../README.md") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		texts[strings.TrimPrefix(file, "../../")] = string(text)
	}
	return texts
}

// The README can be read in three minutes.
func TestReadmeIsShort(t *testing.T) {
	if words := len(strings.Fields(pages(t)["README.md"])); words > 700 {
		t.Errorf("the README has %d words: want at most 700", words)
	}
}

var (
	usageBlock = regexp.MustCompile(`(?m)^    ([A-Z]{4,} .*)$`)
	usageCell  = regexp.MustCompile("(?m)^\\| `([A-Z]+ [^`]*)` \\|")
)

// The reference has the usage of each command, and the README of some, as LOCK HELP prints it.
func TestPagesShowTheUsageOfCommands(t *testing.T) {
	usages := map[string]bool{}
	for i := range syntax.Specs {
		usages[strings.ReplaceAll(syntax.Specs[i].Usage(), "...", "…")] = false
	}
	texts := pages(t)
	for _, m := range usageBlock.FindAllStringSubmatch(texts["docs/commands.md"], -1) {
		if _, ok := usages[m[1]]; ok {
			usages[m[1]] = true
		} else if !strings.HasPrefix(m[1], "DEADLOCK ") {
			t.Errorf("docs/commands.md has %q, want one of %v", m[1], usages)
		}
	}
	for usage, shown := range usages {
		if !shown {
			t.Errorf("docs/commands.md lacks %q", usage)
		}
	}
	cells := usageCell.FindAllStringSubmatch(texts["README.md"], -1)
	for _, m := range cells {
		if _, ok := usages[strings.ReplaceAll(m[1], `\|`, "|")]; !ok {
			t.Errorf("README.md has %q, want one of %v", m[1], usages)
		}
	}
	if len(cells) < 4 {
		t.Errorf("README.md has only %q", cells)
	}
}

var unplain = regexp.MustCompile(`(?i)\bwithout\s+end\b|\btime\s+is\s+over\b|\bstands?\s+still\b|` +
	`\bha[sd]\s+gone\b|\bhave\s+gone\b|\bmost\s+for\b`)

// What users read says forever, expired, hangs and disconnected.
func TestPlainWords(t *testing.T) {
	texts := pages(t)
	for _, pattern := range []string{"../../internal/admin/page/*", "../../examples/*/*.*",
		"../../examples/*/*/*", "../../clients/*/*.*", "../../lockcmd/*/help.txt",
		"../../lockcmd/*/*.json"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("no %s, %v", pattern, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			texts[file] = string(text)
		}
	}
	for page, text := range texts {
		for _, words := range unplain.FindAllString(text, -1) {
			t.Errorf("%s: %q", page, words)
		}
	}
}

var shownCommand = regexp.MustCompile(`^(?:[A-Z_]+=\S+ +)*lockproxy(?: +(.*))?$`)

// Commands that are not run are at least valid.
func TestShownCommandsAreTaken(t *testing.T) {
	seen := 0
	for page, text := range pages(t) {
		for _, s := range extract(text, "console not-run") {
			command, _, _ := strings.Cut(s.command, " #")
			m := shownCommand.FindStringSubmatch(strings.TrimSpace(command))
			if m == nil {
				continue
			}
			seen++
			if _, err := parse(strings.Fields(m[1]), io.Discard); err != nil {
				t.Errorf("%s, line %d: %s: %v", page, s.line, s.command, err)
			}
		}
	}
	if seen < 2 {
		t.Errorf("only %d command lines", seen)
	}
}

// step is one command of a page, and what the page says it prints.
type step struct {
	line       int
	command    string
	shown      []string
	background bool
}

// extract returns the commands in a page's blocks of these kinds: lines that begin with "$ ", and
// the lines beginning with "> " that continue them.
func extract(page string, kinds ...string) (steps []step) {
	fence := ""
	for i, line := range strings.Split(page, "\n") {
		if info, isFence := strings.CutPrefix(line, "```"); isFence {
			if fence != "" {
				info = ""
			}
			fence = info
			continue
		}
		if !slices.Contains(kinds, fence) {
			continue
		}
		last := len(steps) - 1
		switch {
		case strings.HasPrefix(line, "$ "):
			steps = append(steps,
				step{line: i + 1, command: line[2:], background: fence == "console background"})
		case strings.HasPrefix(line, "> ") && last >= 0 && len(steps[last].shown) == 0:
			steps[last].command += "\n" + line[2:]
		case last >= 0:
			steps[last].shown = append(steps[last].shown, line)
		}
	}
	return steps
}
