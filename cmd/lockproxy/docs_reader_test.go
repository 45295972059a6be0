//go:build pages

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

	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
)

// reader types a page's commands, as one who reads it would.
type reader struct {
	t      *testing.T
	ports  map[string]string // the test's own, by those that pages name
	env    []string
	shell  *exec.Cmd
	in     io.WriteCloser
	pipe   *os.File          // from the shell
	out    *bufio.Reader     // reads it
	tokens map[string]string // as printed, by how the page shows them
}

const endOfOutput = "\x01end"

// newReader starts the shell that a page is typed into, in the directory dir.
func newReader(t *testing.T, dir string, steps []step) *reader {
	proxyPort, adminPort := fmt.Sprint(testredis.FreePort(t)), fmt.Sprint(testredis.FreePort(t))
	ports := upstreams(t, steps)
	ports["6380"], ports["6390"] = proxyPort, adminPort
	tools := t.TempDir()
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
		// redis-cli prints types where a person would see its output, and not where a program reads
		// it.
		"redis-cli": `[ "$(readlink /proc/$$/fd/1)" != "` + output + `" ] || exec env FAKETTY=1 ` +
			cli + ` "$@"; exec ` + cli + ` "$@"`,
	} {
		if err := os.WriteFile(filepath.Join(tools, name), []byte("#!/bin/sh\n"+script+"\n"),
			0o755); err != nil {
			t.Fatal(err)
		}
	}
	r := &reader{
		t:     t,
		ports: ports,
		env: append(newcomer(t), "PATH="+tools+":"+os.Getenv("PATH"),
			"LOCKPROXY_LISTEN=127.0.0.1:"+proxyPort,
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
	r.pipe, r.out = read, bufio.NewReader(read)
	t.Cleanup(func() {
		syscall.Kill(-r.shell.Process.Pid, syscall.SIGKILL)
		r.shell.Wait()
		read.Close()
	})
	return r
}

// newcomer is the environment of one who has just come: an empty home, and nothing set. Only what Go
// has compiled and fetched is there, so that it does not do so again.
func newcomer(t *testing.T) []string {
	env := []string{"HOME=" + t.TempDir(), "GOFLAGS=" + os.Getenv("GOFLAGS")}
	for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOPROXY", "GOSUMDB", "GOTOOLCHAIN"} {
		value, err := exec.Command("go", "env", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		env = append(env, name+"="+strings.TrimSpace(string(value)))
	}
	return env
}

const (
	sentinelPort = "26379"
	clusterNodes = "10.0.0.1:6379,10.0.0.2:6379"
)

// upstreams starts the servers that a page wants, and returns their ports by what the page calls
// them.
func upstreams(t *testing.T, steps []step) map[string]string {
	var text strings.Builder
	for _, s := range steps {
		text.WriteString(s.command + "\n")
	}
	port := func(s *testredis.Server) string {
		_, port, _ := strings.Cut(s.Addr(), ":")
		return port
	}
	switch {
	case strings.Contains(text.String(), sentinelPort):
		group := testredis.StartGroup(t, testredis.GroupOptions{})
		return map[string]string{sentinelPort: port(group.Sentinels[0]),
			"6379": port(group.Servers[0])}
	case strings.Contains(text.String(), clusterNodes):
		return map[string]string{clusterNodes: strings.Join(testredis.StartCluster(t, 3,
			0).Addrs()[:2], ",")}
	}
	return map[string]string{"6379": port(testredis.Start(t))}
}

var port = regexp.MustCompile(`\b(?:` + regexp.QuoteMeta(clusterNodes) + `|` + sentinelPort +
	`|63[789]\d)\b`)

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
	command := r.own(s.command)
	for shown, printed := range r.tokens {
		command = strings.ReplaceAll(command, shown, printed)
	}
	if s.background {
		r.start(s, command)
		return
	}
	fmt.Fprintf(r.in, "%s\n{ __status=$?; echo; echo '%s'; (exit $__status); } 2>/dev/null\n",
		command, endOfOutput)
	printed := r.read(s)
	r.compare(s, printed)
}

// read returns the lines that the shell has printed for one command.
func (r *reader) read(s step) (lines []string) {
	r.t.Helper()
	r.pipe.SetReadDeadline(testwait.Deadline())
	for {
		line, err := r.out.ReadString('\n')
		if err != nil {
			r.t.Fatalf("line %d: %s: no end: %v; so far:\n%s", s.line, s.command, err,
				strings.Join(lines, "\n"))
		}
		if line = strings.TrimSuffix(line, "\n"); line == endOfOutput {
			return lines[:len(lines)-1] // the empty line is echo's
		}
		lines = append(lines, line)
	}
}

// start runs a program in the background until it has printed what is shown. It may log other lines
// in between: those of what it has begun already.
func (r *reader) start(s step, command string) {
	r.t.Helper()
	if strings.HasPrefix(command, "go run ") { // to compile takes as long as it takes
		compile := exec.Command("bash", "-c", command+" --version")
		compile.Dir, compile.Env = r.shell.Dir, r.env
		if said, err := compile.CombinedOutput(); err != nil {
			r.t.Fatalf("line %d: %s: %v\n%s", s.line, s.command, err, said)
		}
	}
	p := &process{t: r.t, cmd: exec.Command("bash", "-c", "exec "+command),
		ended: make(chan struct{})}
	p.cmd.Dir, p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = r.shell.Dir, r.env, &p.log, &p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // go run starts another process
	if err := p.cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	go func() { // ends with the process, which Cleanup kills
		defer close(p.ended)
		p.cmd.Wait()
	}()
	r.t.Cleanup(func() { syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL); <-p.ended })
	var lines []string
	if !testwait.Holds(func() bool {
		lines = strings.Split(p.said(), "\n")
		lines = lines[:len(lines)-1]
		return r.among(s.shown, lines)
	}) {
		r.compare(s, lines)
	}
}

// among reports whether printed has the lines shown, in their order.
func (r *reader) among(shown, printed []string) bool {
	for _, line := range printed {
		if len(shown) > 0 && r.alike(r.own(shown[0]), line) {
			shown = shown[1:]
		}
	}
	return len(shown) == 0
}
