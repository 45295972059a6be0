package mutate

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"lockproxy/internal/test/testwait"
)

// tree is as little as Main judges: its only test never ends with a change.
var tree = map[string]string{
	"go.mod":                "module lockproxy\n\ngo 1.25\n",
	"cmd/lockproxy/main.go": "package main\n\nfunc main() {}\n",
	"passthrough/p.go":      "package passthrough\n\nfunc isOn() bool { return true }\n",
	"passthrough/p_test.go": `package passthrough

import (
	"fmt"
	"os"
	"testing"
)

func TestIsOn(t *testing.T) {
	if !isOn() {
		text := fmt.Sprintf("%d %s", os.Getpid(), os.Getenv("GOCACHE"))
		os.WriteFile("begun.new", []byte(text), 0o600)
		os.Rename("begun.new", "begun")
		for {
		}
	}
}
`,
}

// A run that a signal ends leaves neither the test that it runs nor what it has compiled.
func TestASignalLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	for name, text := range tree {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	status := make(chan int, 1)
	go func() { status <- Main([]string{"-places", "passthrough", "-count", "1"}) }()
	var begun []byte
	testwait.Until(t, "a test that runs with a change", func() bool {
		begun, _ = os.ReadFile("passthrough/begun")
		return begun != nil
	})
	process, cache, _ := strings.Cut(string(begun), " ")
	if !strings.HasPrefix(cache, temporary) {
		t.Errorf("what is compiled stays in %s", cache)
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if got := testwait.For(t, "the program's end", status); got != 2 {
		t.Errorf("the status is %d", got)
	}
	if id, _ := strconv.Atoi(process); syscall.Kill(id, 0) == nil {
		t.Error("the test still runs")
	}
	if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
