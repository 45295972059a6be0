package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"lockproxy/internal/testredis"
)

// The pages whose commands are run. In them a fenced block "console" is a session in one shell, "console background" is a
// program that goes on, and "console not-run" is left out, as is every block of another kind.
var pages = []string{"README.md", "docs/tutorial.md", "docs/patterns.md", "docs/operations.md", "docs/observability.md"}

// TestPages runs each page from top to bottom against a real Redis and compares what is printed with what is shown. The ports
// 6379, 6380 and 6390 stand for the test's own.
func TestPages(t *testing.T) {
	for _, page := range pages {
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile("../../" + page)
			if err != nil {
				t.Fatal(err)
			}
			steps := extract(string(text))
			if len(steps) == 0 {
				t.Fatal("nothing in it is run")
			}
			r := newReader(t)
			for _, s := range steps {
				r.take(s)
			}
		})
	}
}

// step is one command of a page, and what the page says it prints.
type step struct {
	line       int
	command    string
	shown      []string
	background bool
}

// extract returns the commands in a page: lines that begin with "$ ", and the lines beginning with "> " that continue them.
func extract(page string) (steps []step) {
	fence := ""
	for i, line := range strings.Split(page, "\n") {
		if info, isFence := strings.CutPrefix(line, "```"); isFence {
			if fence != "" {
				info = ""
			}
			fence = info
			continue
		}
		if fence != "console" && fence != "console background" {
			continue
		}
		last := len(steps) - 1
		switch {
		case strings.HasPrefix(line, "$ "):
			steps = append(steps, step{line: i + 1, command: line[2:], background: fence == "console background"})
		case strings.HasPrefix(line, "> ") && last >= 0 && len(steps[last].shown) == 0:
			steps[last].command += "\n" + line[2:]
		case last >= 0:
			steps[last].shown = append(steps[last].shown, line)
		}
	}
	return steps
}

// reader types a page's commands, as one who reads it would.
type reader struct {
	t      *testing.T
	ports  map[string]string // the test's own, by those that pages name
	root   string
	env    []string
	shell  *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	tokens map[string]string // as printed, by how the page shows them
}

const endOfOutput = "\x01end"

func newReader(t *testing.T) *reader {
	server := testredis.Start(t)
	_, redisPort, _ := strings.Cut(server.Addr(), ":")
	proxyPort, adminPort := fmt.Sprint(testredis.FreePort(t)), fmt.Sprint(testredis.FreePort(t))
	dir := t.TempDir()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	cli, err := exec.LookPath("redis-cli")
	if err != nil {
		t.Fatal("redis-cli is not installed: run make deps")
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", write.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	for name, script := range map[string]string{
		"lockproxy": asProgram + `=1 exec ` + os.Args[0] + ` "$@"`,
		// redis-cli prints types where a person would see its output, and not where a program reads it.
		"redis-cli": `[ "$(readlink /proc/$$/fd/1)" != "` + output + `" ] || exec env FAKETTY=1 ` + cli + ` -3 "$@"; exec ` + cli + ` "$@"`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	r := &reader{
		t:     t,
		ports: map[string]string{"6379": redisPort, "6380": proxyPort, "6390": adminPort},
		root:  root,
		env: append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "LOCKPROXY_LISTEN=127.0.0.1:"+proxyPort,
			"LOCKPROXY_URL=redis://127.0.0.1:"+proxyPort, "TERM=dumb", "NO_COLOR=1"),
		tokens: map[string]string{},
	}
	r.shell = exec.Command("bash")
	r.shell.Dir, r.shell.Env = dir, r.env
	r.shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	r.shell.Stdout, r.shell.Stderr = write, write
	if r.in, err = r.shell.StdinPipe(); err == nil {
		err = r.shell.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	write.Close()
	r.out = bufio.NewReader(read)
	read.SetReadDeadline(time.Now().Add(time.Minute))
	t.Cleanup(func() {
		syscall.Kill(-r.shell.Process.Pid, syscall.SIGKILL)
		r.shell.Wait()
		read.Close()
	})
	return r
}

var port = regexp.MustCompile(`\b63[789]\d\b`)

// own replaces the ports that pages name by the test's own.
func (r *reader) own(text string) string {
	return port.ReplaceAllStringFunc(text, func(word string) string {
		if own, ok := r.ports[word]; ok {
			return own
		}
		return word
	})
}

// take runs one step and compares.
func (r *reader) take(s step) {
	r.t.Helper()
	command := strings.ReplaceAll(s.command, "go run ./cmd/lockproxy", "lockproxy")
	command = r.own(strings.ReplaceAll(command, "go run ./examples", "go run -C "+r.root+" ./examples"))
	for shown, printed := range r.tokens {
		command = strings.ReplaceAll(command, shown, printed)
	}
	if s.background {
		r.start(s, command)
		return
	}
	fmt.Fprintf(r.in, "%s\n{ __status=$?; echo; echo '%s'; (exit $__status); } 2>/dev/null\n", command, endOfOutput)
	printed := r.read(s)
	r.compare(s, printed)
}

// read returns the lines that the shell has printed for one command.
func (r *reader) read(s step) (lines []string) {
	r.t.Helper()
	for {
		line, err := r.out.ReadString('\n')
		if err != nil {
			r.t.Fatalf("line %d: %s: no end: %v; so far:\n%s", s.line, s.command, err, strings.Join(lines, "\n"))
		}
		if line = strings.TrimSuffix(line, "\n"); line == endOfOutput {
			return lines[:len(lines)-1] // the empty line is echo's
		}
		lines = append(lines, line)
	}
}

// start runs a program in the background until it has printed what is shown.
func (r *reader) start(s step, command string) {
	r.t.Helper()
	p := &process{t: r.t, cmd: exec.Command("bash", "-c", "exec "+command), ended: make(chan struct{})}
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = r.env, p, p
	if err := p.cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	go func() { // ends with the process, which Cleanup kills
		defer close(p.ended)
		p.cmd.Wait()
	}()
	r.t.Cleanup(func() { p.cmd.Process.Kill(); <-p.ended })
	for deadline := time.Now().Add(20 * time.Second); strings.Count(p.said(), "\n") < len(s.shown); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			break
		}
	}
	lines := strings.Split(p.said(), "\n")
	r.compare(s, lines[:min(len(lines)-1, len(s.shown))])
}

// compare looks whether lines are what the page shows, but for what differs each time.
func (r *reader) compare(s step, printed []string) {
	r.t.Helper()
	ok := len(printed) == len(s.shown)
	for i := 0; ok && i < len(printed); i++ {
		ok = r.alike(r.own(s.shown[i]), printed[i])
	}
	if !ok {
		r.t.Errorf("line %d: %s\nprints:\n%s\nand the page shows:\n%s", s.line, s.command, strings.Join(printed, "\n"), strings.Join(s.shown, "\n"))
	}
}

// changing is a thing that is another each time: as pages show it, and what may be printed for it.
type changing struct{ shown, printed *regexp.Regexp }

func changes(shown, printed string) changing {
	return changing{regexp.MustCompile(shown), regexp.MustCompile(printed)}
}

var (
	token  = changes(`\b1[67]\d{14}\b`, `\d{16}`)
	others = []changing{
		changes(`\b1[67]\d{11}\b`, `\d{13}`), // Unix time, ms
		changes(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z`, `\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z`),
		changes(`127\.0\.0\.1:5\d{4}\b`, `127\.0\.0\.1:\d+`),                   // a client's port
		changes(`host:4711:(\w+):[0-9a-f]{16}`, `[^ "]+:\d+:\w+:[0-9a-f]{16}`), // the owner's name of lockproxy run
		changes(`\b\d+(?:\.\d+)?(?:µs|ms)`, `\d+(?:\.\d+)?(?:µs|ms|s)`),        // how long it took
		changes(`"remaining_ms" => \(integer\) \d+`, `"remaining_ms" => \(integer\) \d+`),
		changes(`Redis \d+\.\d+\.\d+`, `Redis \d+\.\d+\.\d+`),
		changes(`…`, `.*`),
	}
)

// next finds the first changing thing in a line.
func next(line string) (found changing, from, to int) {
	from = -1
	for _, c := range append([]changing{token}, others...) {
		if at := c.shown.FindStringIndex(line); at != nil && (from < 0 || at[0] < from) {
			found, from, to = c, at[0], at[1]
		}
	}
	return found, from, to
}

// alike compares one line. What a page shows as a token must be the same token wherever the page shows it.
func (r *reader) alike(shown, printed string) bool {
	pattern, rest := "^", shown
	var tokens []string
	for {
		c, from, to := next(rest)
		if from < 0 {
			break
		}
		pattern += regexp.QuoteMeta(rest[:from])
		if c == token {
			tokens = append(tokens, rest[from:to])
			pattern += "(" + c.printed.String() + ")"
		} else {
			pattern += "(?:" + c.printed.String() + ")"
		}
		rest = rest[to:]
	}
	found := regexp.MustCompile(pattern + regexp.QuoteMeta(rest) + "$").FindStringSubmatch(printed)
	if found == nil {
		return false
	}
	for i, token := range tokens {
		if known, ok := r.tokens[token]; ok && known != found[i+1] {
			return false
		}
		r.tokens[token] = found[i+1]
	}
	return true
}
