//go:build pages

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestPages runs each page from top to bottom against a real Redis, in a clean clone and with an
// empty home, and compares what is printed with what is shown. The README is run with the lockproxy
// that it builds. The programs in docs/patterns.md are run by test/clients. The ports 6379, 6380 and 6390 stand for the test's own, 26379 for a Sentinel's, and the addresses
// 10.0.0.1:6379,10.0.0.2:6379 for a cluster's nodes.
func TestPages(t *testing.T) {
	run := 0
	for page, text := range pages(t) {
		steps := extract(text, "console", "console background")
		if len(steps) == 0 {
			continue
		}
		run++
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			clone(t, dir, page, text)
			r := newReader(t, dir, steps)
			for _, s := range steps {
				r.take(s)
			}
		})
	}
	if run < 8 {
		t.Errorf("only %d pages have commands that are run", run)
	}
}

// clone makes dir a clone of the repository, with the page as it is here.
func clone(t *testing.T, dir, page, text string) {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if said, err := exec.Command("git", "clone", "-q", root, dir).CombinedOutput(); err != nil {
		t.Fatalf("git clone: %v\n%s", err, said)
	}
	if err := os.WriteFile(filepath.Join(dir, page), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
