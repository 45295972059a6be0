//go:build clients

package clients_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"lockproxy/internal/proxytest"
	"lockproxy/internal/testredis"
)

// A clientProgram is a program of testdata that uses one client library.
type clientProgram struct {
	name      string
	dir       string   // below testdata
	build     []string // run in dir first, if set; {out} is the program to build
	run       []string // run in dir, with host, port and, if protocols are given, protocol added
	env       []string // for it, in addition to the test's
	protocols []string // the RESP versions it can speak, if it lets one choose
	shared    bool     // it has the step lock-shared: one program of each language
	silent    bool     // it sends no pings while it holds a lock
	waits     bool     // it sends pings while it waits for one
	forks     bool     // it can fork while it holds one
}

// Debian's libraries belong to the interpreters in /usr/bin: others can come first on PATH.
var clientPrograms = []clientProgram{
	{name: "redis-cli", dir: "redis-cli", run: []string{"bash", "redis-cli.sh"},
		protocols: []string{"2", "3"}, shared: true},
	{name: "hiredis", dir: "hiredis", build: []string{"cc", "-Wall", "-o", "{out}", "hiredis.c",
		"-lhiredis"}, run: []string{"{out}"}, shared: true},
	{name: "redis-py", dir: "redis-py", run: []string{"/usr/bin/python3", "redis_py.py"},
		shared: true},
	{name: "phpredis", dir: "phpredis", run: []string{"/usr/bin/php", "phpredis.php"},
		shared: true},
	{name: "predis", dir: "predis", run: []string{"/usr/bin/php", "predis.php"}},
	{name: "redis-rb", dir: "redis-rb", run: []string{"/usr/bin/ruby", "redis_rb.rb"},
		shared: true},
	{name: "perl", dir: "perl", run: []string{"/usr/bin/perl", "redis.pl"}, shared: true},
	{name: "ioredis", dir: "node", run: []string{"node", "ioredis.js"},
		protocols: []string{"2", "3"}, shared: true},
	{name: "node-redis", dir: "node", run: []string{"node", "node-redis.js"},
		protocols: []string{"2", "3"}},
	{name: "go-redis", dir: "go", build: []string{"go", "build", "-o", "{out}", "./go-redis"},
		run: []string{"{out}"}, protocols: []string{"2", "3"}, shared: true},
	{name: "rueidis", dir: "go", build: []string{"go", "build", "-o", "{out}", "./rueidis"},
		run: []string{"{out}"}, protocols: []string{"2", "3"}},
	{name: "redigo", dir: "go", build: []string{"go", "build", "-o", "{out}", "./redigo"},
		run: []string{"{out}"}},
	{name: "java", dir: "java", run: []string{"java", "LockClient.java"},
		protocols: []string{"2", "3"}, shared: true},
}

// clientSteps are the steps that every program must report.
var clientSteps = []string{"data", "pipeline", "transaction", "pubsub", "script", "wait-command",
	"lock", "lock-error", "lock-order", "lock-wait", "lock-lost"}

func TestClients(t *testing.T) {
	t.Parallel()
	bin := proxytest.Binary(t)
	testClients(t, bin, func(t *testing.T) (url string) {
		t.Parallel() // they mostly wait
		return testredis.Start(t).URL()
	})
}

// testClients runs all programs through the lockproxy at path bin, each in front of an upstream.
func testClients(t *testing.T, bin string, upstream func(*testing.T) (url string), env ...string) {
	for _, c := range clientPrograms {
		c.env = env
		t.Run(c.name, func(t *testing.T) {
			url, lockproxy := upstream(t), strconv.Itoa(testredis.FreePort(t))
			startForClients(t, lockproxy, bin, "--listen", "127.0.0.1:"+lockproxy,
				"--upstream", url)
			out := filepath.Join(t.TempDir(), c.name)
			if c.build != nil {
				c.command(t, 8*time.Minute, out, c.build)
			}
			if c.protocols == nil {
				c.test(t, out, "127.0.0.1", lockproxy)
			}
			for _, p := range c.protocols {
				t.Run("RESP"+p, func(t *testing.T) { c.test(t, out, "127.0.0.1", lockproxy, p) })
			}
		})
	}
}

func (c clientProgram) test(t *testing.T, out string, args ...string) {
	printed := c.command(t, time.Minute, out, slices.Concat(c.run, args))

	for _, step := range clientSteps {
		if !slices.Contains(strings.Split(printed, "\n"), "ok "+step) {
			t.Errorf("the program left out %s; it printed:\n%s", step, printed)
		}
	}
	if c.shared {
		checkShared(t, net.JoinHostPort(args[0], args[1]), printed)
	}
}

// command runs words in the program's directory and returns
// what it printed. It fails the test if the command fails.
func (c clientProgram) command(t *testing.T, limit time.Duration, out string,
	words []string) string {
	t.Helper()
	words = slices.Clone(words)
	for i, word := range words {
		words[i] = strings.ReplaceAll(word, "{out}", out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Dir, cmd.Env = filepath.Join("testdata", c.dir), append(os.Environ(), c.env...)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	// Some programs start others: in one process group all of them can be ended.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("not done within %v", limit)
		}
		t.Fatalf("%s: %v\n%s%s", strings.Join(words, " "), err, stdout.String(), stderr.String())
	}
	return stdout.String()
}

// startForClients starts a server, waits until it answers on its port, and ends it with the test.
func startForClients(t *testing.T, port, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(name, args...)
	var output strings.Builder
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	stop := func() {
		cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			cmd.Process.Kill()
			<-ended
			t.Errorf("%s did not end on SIGTERM in 10 s", name)
		}
		if t.Failed() {
			t.Logf("output of %s:\n%s", name, output.String())
		}
	}
	t.Cleanup(func() { stop() })
	for deadline := time.Now().Add(20 * time.Second); !answersPing(port); {
		select {
		case err := <-ended:
			ended <- err // for stop
			t.Fatalf("%s ended: %v", name, err)
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s does not answer on port %s", name, port)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func answersPing(port string) bool {
	conn, err := net.DialTimeout("tcp", "127.0.0.1:"+port, time.Second)
	if err != nil {
		return false
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Second))
	fmt.Fprint(conn, "PING\r\n")
	line, _ := bufio.NewReader(conn).ReadString('\n')
	return line == "+PONG\r\n"
}
