//go:build clients

package clients_test

import (
	"bufio"
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

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
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
			c.builds(t, out)
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
	printed := c.command(t, out, slices.Concat(c.run, args))

	for _, step := range clientSteps {
		if !slices.Contains(strings.Split(printed, "\n"), "ok "+step) {
			t.Errorf("the program left out %s; it printed:\n%s", step, printed)
		}
	}
	if c.shared {
		checkShared(t, net.JoinHostPort(args[0], args[1]), printed)
	}
}

// builds runs what builds the program in its directory, if there is such a thing, for as long as
// that takes.
func (c clientProgram) builds(t *testing.T, out string) {
	t.Helper()
	if c.build == nil {
		return
	}
	words := withOut(c.build, out)
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Dir = filepath.Join("testdata", c.dir)
	if printed, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(words, " "), err, printed)
	}
}

// withOut are the words of a command with the name of the built program in them.
func withOut(words []string, out string) []string {
	words = slices.Clone(words)
	for i, word := range words {
		words[i] = strings.ReplaceAll(word, "{out}", out)
	}
	return words
}

// command runs words in the program's directory and returns
// what it printed. It fails the test if the command fails.
func (c clientProgram) command(t *testing.T, out string, words []string) string {
	t.Helper()
	words = withOut(words, out)
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Dir, cmd.Env = filepath.Join("testdata", c.dir), append(os.Environ(), withOut(c.env, out)...)
	stdout, stderr, err := runToEnd(t, cmd)
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", strings.Join(words, " "), err, stdout, stderr)
	}
	return stdout
}

// runToEnd runs a command and returns what it has printed. It fails if nothing more is printed
// within the patience of tests. What is printed goes to files, since programs that the command
// leaves behind would keep pipes open.
func runToEnd(t *testing.T, cmd *exec.Cmd) (stdout, stderr string, err error) {
	dir := t.TempDir()
	outputs := [2]*os.File{}
	for i, name := range []string{"stdout", "stderr"} {
		if outputs[i], err = os.Create(filepath.Join(dir, name)); err != nil {
			return "", "", err
		}
		defer outputs[i].Close()
	}
	cmd.Stdout, cmd.Stderr = outputs[0], outputs[1]
	// Some programs start others: in one process group all of them can be ended.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return "", "", err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }() // ends with the process
	printed := func() (n int64) {
		for _, file := range outputs {
			if info, err := file.Stat(); err == nil {
				n += info.Size()
			}
		}
		return n
	}
	for done := false; !done; {
		before := printed()
		if !testwait.Holds(func() bool {
			select {
			case err = <-ended:
				done = true
			default:
			}
			return done || printed() > before
		}) {
			syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			<-ended
			err, done = fmt.Errorf("it prints nothing more within %v", testwait.Patience), true
		}
	}
	text, _ := os.ReadFile(outputs[0].Name())
	errors, _ := os.ReadFile(outputs[1].Name())
	return string(text), string(errors), err
}

// startForClients starts a server, waits until it answers on its port, and ends it with the test.
func startForClients(t *testing.T, port, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(name, args...)
	var output testredis.LogBuffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { // ends with the process, which Cleanup ends
		defer close(ended)
		cmd.Wait()
	}()
	hasEnded := func() bool {
		select {
		case <-ended:
			return true
		default:
			return false
		}
	}
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		if !testwait.Holds(hasEnded) {
			cmd.Process.Kill()
			<-ended
			t.Errorf("%s does not end on SIGTERM", name)
		}
		if t.Failed() {
			t.Logf("output of %s:\n%s", name, output.String())
		}
	})
	testwait.Until(t, name+" answers on port "+port, func() bool {
		if hasEnded() {
			t.Fatalf("%s ended: %v", name, cmd.ProcessState)
		}
		return answersPing(port)
	})
}

func answersPing(port string) bool {
	conn, err := net.Dial("tcp", "127.0.0.1:"+port)
	if err != nil {
		return false
	}
	defer conn.Close()
	conn.SetDeadline(testwait.Deadline())
	fmt.Fprint(conn, "PING\r\n")
	line, _ := bufio.NewReader(conn).ReadString('\n')
	return line == "+PONG\r\n"
}
