package main

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
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
	name := regexp.MustCompile(`\w+`)
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

// The list of imports in docs/architecture.md is that of the source: of all packages that proxy
// needs, without the tests.
func TestArchitectureListsTheImports(t *testing.T) {
	const root = "../.."
	page, err := os.ReadFile(filepath.Join(root, "docs/architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(page), "<!-- imports -->\n```\n")
	list, _, _ = strings.Cut(list, "```")
	var want strings.Builder
	done, next := map[string]bool{}, []string{"proxy"}
	for len(next) > 0 {
		slices.Sort(next)
		pkg := next[0]
		next = next[1:]
		if done[pkg] {
			continue
		}
		done[pkg] = true
		of := importsOf(t, filepath.Join(root, pkg))
		next = append(next, of...)
		if len(of) > 0 {
			want.WriteString(pkg + ": " + strings.Join(of, ", ") + "\n")
		}
	}
	lines := strings.SplitAfter(want.String(), "\n")
	slices.Sort(lines)
	if sorted := strings.Join(lines, ""); list != sorted {
		t.Errorf("the list is\n%s\nwant\n%s", list, sorted)
	}
}

// importsOf are the packages of this module that a package imports, without its tests.
func importsOf(t *testing.T, dir string) (list []string) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no source in %s: %v", dir, err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range parsed.Imports {
			if name, ok := strings.CutPrefix(strings.Trim(spec.Path.Value, `"`), "lockproxy/"); ok {
				list = append(list, name)
			}
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}
