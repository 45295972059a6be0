package main

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// literals are string constants that Go code adds up over several lines.
var literals = regexp.MustCompile(`"\s*\+\s*"`)

// serversOwn are messages that come from Redis, as it says them.
var serversOwn = []string{"WRONGTYPE", "NOPERM", "NOAUTH", "OOM", "CROSSSLOT", "(nil)"}

// Each message that docs/troubleshooting.md explains is one that the program can say.
func TestTroubleshootingQuotesTheProgram(t *testing.T) {
	files, err := exec.Command("git", "-C", repository, "ls-files", "*.go").Output()
	if err != nil {
		t.Fatal(err)
	}
	var source strings.Builder
	for name := range strings.FieldsSeq(string(files)) {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(repository + "/" + name)
		if err != nil {
			t.Fatal(err)
		}
		source.Write(text)
	}
	said := literals.ReplaceAllString(source.String(), "")
	page, err := os.ReadFile(repository + "/docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile("(?m)^\\| `([^`]+)`[^|]*\\| ").FindAllStringSubmatch(string(page), -1)
	if len(rows) < 30 {
		t.Fatalf("only %d messages", len(rows))
	}
rows:
	for _, row := range rows {
		for _, word := range serversOwn {
			if strings.HasPrefix(row[1], word) {
				continue rows
			}
		}
		for part := range strings.SplitSeq(row[1], "…") {
			for _, code := range []string{"UPSTREAM ", "NOREPLICAS ", "ERR "} {
				part = strings.TrimPrefix(part, code)
			}
			if part = strings.Trim(part, " :,"); !strings.Contains(said, part) {
				t.Errorf("nothing says %q, of %q", part, row[1])
			}
		}
	}
}
