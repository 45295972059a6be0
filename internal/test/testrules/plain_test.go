package testrules

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// make test runs the tests that only compute without the race detector, and leaves them out where it
// has it. So each must be in a package that it lists for them: otherwise nobody runs it. It lists no
// others, each of which would be linked and started for nothing.
func TestPlainTestsAreRun(t *testing.T) {
	const root = "../../.."
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	value := func(name string) string {
		found := regexp.MustCompile(`(?m)^` + name + ` = (.*)$`).FindSubmatch(makefile)
		if found == nil {
			t.Fatalf("the Makefile has no %s", name)
		}
		return strings.ReplaceAll(string(found[1]), "$$", "$")
	}
	plain, packages := regexp.MustCompile(value("PLAIN")), strings.Fields(value("PLAIN_PACKAGES"))
	declared, has := regexp.MustCompile(`(?m)^func (Test\w+)\(`), map[string]bool{}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root {
			if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil {
				return filepath.SkipDir // another module
			}
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		below, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		dir := "./" + filepath.ToSlash(below)
		for _, test := range declared.FindAllSubmatch(source, -1) {
			if !plain.Match(test[1]) {
				continue
			}
			if has[dir] = true; !slices.Contains(packages, dir) {
				t.Errorf("%s of %s is run by nobody: PLAIN_PACKAGES lacks it", test[1], dir)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	for _, dir := range packages {
		if !has[dir] {
			t.Errorf("PLAIN_PACKAGES has %s, which has no such test", dir)
		}
	}
}
