package main

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"
)

// server is a process that speaks the Redis protocol. start can be called again after end.
type server struct {
	addr  string
	admin string // of a lockproxy: the address of its metrics
	path  string
	args  []string
	cmd   *exec.Cmd
	log   bytes.Buffer
}

// start runs the program and waits until it serves.
func (s *server) start(ctx context.Context) error {
	s.log.Reset()
	s.cmd = exec.Command(s.path, s.args...)
	s.cmd.Stdout, s.cmd.Stderr = &s.log, &s.log
	// A Ctrl-C must reach lockbench alone, which ends its servers itself.
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := s.cmd.Start(); err != nil {
		return fmt.Errorf("cannot start %s: %w", s.path, err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		err := s.serves()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case time.Now().After(deadline):
			s.end()
			return fmt.Errorf("%s does not serve on %s: %w: it printed: %s", s.path, s.addr, err,
				strings.TrimSpace(s.log.String()))
		}
	}
}

// serves asks a question that a proxy cannot answer by itself. A node of a cluster serves, too, if
// it has no slots yet, or not that of the key.
func (s *server) serves() error {
	c, err := dial(s.addr)
	if err != nil {
		return err
	}
	defer c.close()
	c.conn.SetDeadline(time.Now().Add(time.Second))
	r, err := c.do("GET", "lockbench:none")
	switch {
	case err != nil && (strings.Contains(err.Error(), "MOVED") ||
		strings.Contains(err.Error(), "CLUSTERDOWN")):
		return nil
	case err == nil && !r.null:
		return errors.New("it has a value for a key that does not exist")
	}
	return err
}

func (s *server) process() process { return process(s.cmd.Process.Pid) }

// end asks the process to stop, and kills it if it does not. end can be called again.
func (s *server) end() {
	if s.cmd == nil || s.cmd.Process == nil || s.cmd.ProcessState != nil {
		return
	}
	s.cmd.Process.Signal(syscall.SIGTERM)
	kill := time.AfterFunc(3*time.Second, func() { s.cmd.Process.Kill() })
	s.cmd.Wait()
	kill.Stop()
}

//go:embed install.sh
var installScript string

// install installs HAProxy and twemproxy if they are missing.
func install(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, "sh", "-s")
	cmd.Stdin = strings.NewReader(installScript)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return errors.New(string(bytes.TrimSpace(out)))
	}
	return nil
}

// findProxies makes the paths of the proxies absolute. If there is none, it builds one from the
// source in which lockbench runs.
func (l *lab) findProxies() error {
	commit := ""
	if len(l.proxies) == 0 {
		path := filepath.Join(l.dir, "lockproxy")
		source := printed("go", "list", "-m", "-f", "{{.Dir}}", "lockproxy")
		out, err := exec.CommandContext(l.ctx, "go", "-C", source, "build", "-o", path,
			"./cmd/lockproxy").CombinedOutput()
		if err != nil {
			return fmt.Errorf("cannot build lockproxy: %w: %s\nRun lockbench inside its source, "+
				"or name a built one with --proxy", err, bytes.TrimSpace(out))
		}
		l.proxies = []proxyBinary{{viaLockproxy, path}}
		commit = printed("git", "describe", "--always", "--dirty")
	}
	for i, p := range l.proxies {
		path, err := filepath.Abs(p.path)
		if err == nil {
			_, err = os.Stat(path)
		}
		if err != nil {
			return fmt.Errorf("--proxy: %w", err)
		}
		l.proxies[i].path = path
		l.versions.add(p.name,
			cmp.Or(commit, strings.TrimPrefix(printed(path, "--version"), "lockproxy ")))
	}
	for _, p := range []struct{ name, program, flag string }{{viaHAProxy, "haproxy", "-v"},
		{viaTwemproxy, "nutcracker", "-V"}, {"Redis", "redis-server", "--version"}} {
		if text := printed(p.program, p.flag); text != "" {
			l.versions.add(p.name, regexp.MustCompile(`\d+(\.\d+)+`).FindString(text))
		}
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			switch dep.Path {
			case "github.com/redis/go-redis/v9", "github.com/bsm/redislock",
				"github.com/redis/rueidis":
				l.versions.add(dep.Path, dep.Version)
			}
		}
	}
	return nil
}

// printed is the output of a program, "" if the program fails.
func printed(program string, args ...string) string {
	out, err := exec.Command(program, args...).CombinedOutput()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// versions name the programs and libraries of a run.
type versions []string

func (v *versions) add(name, version string) { *v = append(*v, name+" "+version) }

// quiet is the share of the cores that other programs may use if the figures are to be kept.
const quiet = 0.03

// others says how much of the machine other programs have used.
func (l *lab) others() string {
	share := l.watch.others()
	text := fmt.Sprintf("other programs used %.0f %% of the cores meanwhile", 100*share)
	if share > quiet {
		text += ": **too much for reliable figures**"
	}
	return text
}

// head is the beginning of a report.
func (l *lab) head() string {
	args := ""
	if len(l.args) > 0 {
		args = " Flags of lockproxy: `" + strings.Join(l.args, " ") + "`."
	}
	return fmt.Sprintf(`# Figures of lockbench

%s: %s; %s.
%s; %s.%s

Cells are medians over the rounds, in brackets the least and most of them. Ratios are between runs
of the same round, one right after the other.
`, time.Now().UTC().Format(time.DateOnly), machine(), runtime.Version(),
		strings.Join(l.versions, ", "), l.others(), args)
}
