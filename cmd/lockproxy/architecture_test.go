package main

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// The files and functions that docs/architecture.md names exist.
func TestArchitectureNamesWhatIsThere(t *testing.T) {
	const root = "../.."
	page, err := os.ReadFile(filepath.Join(root, "docs/architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`(\\w+/[\\w/]+\\.(?:go|lua))`(?:: ((?:`\\w+`(?:, )?)+))?")
	name := regexp.MustCompile("\\w+")
	places := 0
	for _, place := range named.FindAllSubmatch(page, -1) {
		source, err := os.ReadFile(filepath.Join(root, string(place[1])))
		if err != nil {
			t.Error(err)
			continue
		}
		for _, n := range name.FindAll(place[2], -1) {
			places++
			declared := `(?m)^(func (\([^)]*\) )?|local function |function |const |\s*)` + string(n) +
				`(\(| += )`
			if !regexp.MustCompile(declared).Match(source) {
				t.Errorf("%s declares no %s", place[1], n)
			}
		}
	}
	if places < 20 {
		t.Errorf("only %d functions are named", places)
	}
}
