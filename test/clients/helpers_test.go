//go:build clients

package clients_test

import (
	"bufio"
	"bytes"
	"cmp"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
)

var (
	pythonProgram = regexp.MustCompile("(?s)\n```python\n(.*?)\n```\n")
	readmeProgram = regexp.MustCompile("(?s)\n```(js|go|java|ruby|php|csharp|rust)\n(.*?)\n```\n")
	javaImport    = regexp.MustCompile(`(?m)^import [\w.]+;\n`) // which stands in front of all else
	readmePlace   = regexp.MustCompile(`(?m)^[ \t]*(//|#) the program of README.md$`)
)

// readmes run the program that a package's README.md shows, in the project in which the package is
// installed. The file of testdata/readme has what such a program needs around it.
var readmes = []struct{ from, file, run string }{
	{"node", "readme.mjs", "node readme.mjs"},
	{"go", "main.go", "go run ./readme"},
	{"java", "Readme.java", "java -cp m2/lockproxy/lockproxy/1.0.0/lockproxy-1.0.0.jar Readme.java"},
	{"ruby", "readme.rb", "GEM_HOME=. /usr/bin/ruby readme.rb"},
	{"php", "readme.php", "/usr/bin/php readme.php"},
	{"dotnet", "Readme.cs", "mcs -r:Lockproxy.dll -out:readme.exe Readme.cs && mono readme.exe"},
}

// The README.md of each package shows a program of ten lines, which runs as it is printed, except
// for the port, with the package that is installed from the repository.
func TestHelperReadme(t *testing.T) {
	t.Parallel()
	for _, readme := range readmes {
		t.Run(readme.from, func(t *testing.T) {
			t.Parallel()
			testReadme(t, readme.from, readme.file, readme.run)
		})
	}
}

func testReadme(t *testing.T, from, file, run string) {
	t.Helper()
	folder, upstream := installed(t, from), testredis.Start(t)
	around, err := os.ReadFile("testdata/readme/" + file)
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../clients/" + from + "/README.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := readmeProgram.FindSubmatch(page)
	if shown == nil || !readmePlace.Match(around) {
		t.Fatalf("no program in README.md, or no place for it in %s", file)
	}
	imports := bytes.Join(javaImport.FindAll(shown[2], -1), nil)
	text := string(imports) +
		string(readmePlace.ReplaceAllLiteral(around, javaImport.ReplaceAll(shown[2], nil)))
	_, port, _ := net.SplitHostPort(proxytest.StartProcess(t, "--upstream", upstream.URL()).Addr)
	path := filepath.Join(folder, file)
	switch from { // where tools look for it
	case "go":
		path = filepath.Join(folder, "readme", file)
	case "rust":
		path = filepath.Join(folder, "src/bin/readme.rs")
	}
	err = os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = os.WriteFile(path, []byte(strings.ReplaceAll(text, "6380", port)), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	does(t, folder, "sh", "-c", run)
	if state := upstream.Ask("GET", "report:state"); state != "done" {
		t.Errorf("report:state is %q", state)
	}
	makes := strings.Contains(text, "report:7")
	if body := upstream.Ask("GET", "report:7"); makes && body != "report 7" {
		t.Errorf("report:7 is %q", body)
	}
}

// What pages show in Python runs as it is printed, except for the port.
func TestHelperOnPages(t *testing.T) {
	t.Parallel()
	upstream := testredis.Start(t)
	_, port, _ := net.SplitHostPort(proxytest.StartProcess(t, "--upstream", upstream.URL()).Addr)
	project := installed(t, "python")
	for page, writes := range map[string][2]string{
		"../../README.md":                {"report:state", "done"},
		"../../clients/python/README.md": {"report:state", "done"},
		"../../docs/once.md":             {"report:7", "all is well"},
	} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		programs := pythonProgram.FindAllStringSubmatch(string(text), -1)
		if len(programs) == 0 {
			t.Errorf("%s shows no program", page)
		}
		for _, m := range programs {
			does(t, project, "env", "PYTHONPATH="+project, "/usr/bin/python3", "-c",
				strings.ReplaceAll(m[1], "6380", port))
		}
		if written := upstream.Ask("GETDEL", writes[0]); written != writes[1] {
			t.Errorf("%s: %s is %q", page, writes[0], written)
		}
	}
}

// holder is a program that holds a lock, or waits for it.
type holder struct {
	*exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
}

// start starts a program, which ends with the test, with all that it has started.
func (c clientProgram) start(t *testing.T, out string, args []string) *holder {
	t.Helper()
	words := withOut(slices.Concat(c.run, args), out)
	h := &holder{Cmd: exec.Command(words[0], words[1:]...)}
	h.Dir = filepath.Join("testdata", c.dir)
	h.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	h.Env, h.Stderr = append(os.Environ(), withOut(c.env, out)...), t.Output()
	stdin, failed := h.StdinPipe()
	stdout, err := h.StdoutPipe()
	if err = cmp.Or(err, failed); err == nil {
		err = h.Start()
	}
	h.stdin = stdin
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		syscall.Kill(-h.Process.Pid, syscall.SIGKILL)
		h.Wait()
	})
	h.stdout = bufio.NewReader(stdout)
	return h
}

func (h *holder) saysHeld(t *testing.T) {
	t.Helper()
	if said, err := h.stdout.ReadString('\n'); said != "held\n" {
		t.Fatalf("the holder says %q, %v", said, err)
	}
}
