//go:build clients

package clients_test

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/proxytest"
	"lockproxy/internal/testredis"
)

// helperPrograms use the files of examples/clients with real libraries. That of Go has a test of
// its own, next to it.
var helperPrograms = []clientProgram{
	{name: "redis-py", dir: "helpers", run: []string{"/usr/bin/python3", "python.py"}},
	{name: "redis-py asyncio", dir: "helpers",
		run: []string{"/usr/bin/python3", "python_asyncio.py"}},
	{name: "redis-rb", dir: "helpers", run: []string{"/usr/bin/ruby", "ruby.rb"}},
	{name: "phpredis", dir: "helpers", run: []string{"/usr/bin/php", "php.php"}},
	{name: "ioredis", dir: "node", run: []string{"node", "helper.mjs"},
		protocols: []string{"ioredis"}},
	{name: "node-redis", dir: "node", run: []string{"node", "helper.mjs"},
		protocols: []string{"node-redis"}},
	{name: "java", dir: "helpers", build: []string{"javac", "-d", "{out}",
		"../../../../examples/clients/java/Lockproxy.java", "LockproxyTest.java"},
		run: []string{"java", "-cp", "{out}", "LockproxyTest"}},
}

// helperSteps are what every program must report: the lock, its queue, an exception inside, a
// fenced write, and a lock that is lost.
var helperSteps = []string{"acquire", "wait", "exception", "fence", "lost"}

func TestHelpers(t *testing.T) {
	bin := proxytest.Binary(t)
	upstream := testredis.Start(t)
	port := strconv.Itoa(testredis.FreePort(t))
	startForClients(t, port, bin, "--listen", "127.0.0.1:"+port, "--upstream", upstream.URL())
	for _, c := range helperPrograms {
		t.Run(c.name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "out")
			if c.build != nil {
				c.command(t, 3*time.Minute, out, c.build)
			}
			args := append([]string{"127.0.0.1", port}, c.protocols...)
			printed := c.command(t, time.Minute, out, slices.Concat(c.run, args))
			for _, step := range helperSteps {
				if !slices.Contains(strings.Split(printed, "\n"), "ok "+step) {
					t.Errorf("the program left out %s; it printed:\n%s", step, printed)
				}
			}
			c.testKilled(t, out, "127.0.0.1:"+port, append(args, "hold", "helper:killed"), 1)
		})
	}
}

var pythonProgram = regexp.MustCompile("(?s)\n```python\n(.*?)\n```\n")

// What pages show in Python runs as it is printed, except for the port.
func TestHelperOnPages(t *testing.T) {
	bin := proxytest.Binary(t)
	upstream := testredis.Start(t)
	port := strconv.Itoa(testredis.FreePort(t))
	startForClients(t, port, bin, "--listen", "127.0.0.1:"+port, "--upstream", upstream.URL())
	helpers, err := filepath.Abs("../../examples/clients/python")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range []string{"../../README.md", "../../examples/clients/README.md"} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		programs := pythonProgram.FindAllStringSubmatch(string(text), -1)
		if len(programs) == 0 {
			t.Errorf("%s shows no program", page)
		}
		for _, m := range programs {
			c := clientProgram{dir: "helpers"}
			c.command(t, time.Minute, "", []string{"env", "PYTHONPATH=" + helpers,
				"/usr/bin/python3", "-c", strings.ReplaceAll(m[1], "6380", port)})
		}
		if written := upstream.Ask("GETDEL", "report:state"); written != "done" {
			t.Errorf("%s: report:state is %q", page, written)
		}
	}
}

// testKilled kills a program while it holds a lock: that is free within so many seconds. The locks
// of helpers have a timeout of 10 s or more.
func (c clientProgram) testKilled(t *testing.T, out, addr string, args []string, within int) {
	t.Helper()
	words := slices.Concat(c.run, args)
	for i := range words {
		words[i] = strings.ReplaceAll(words[i], "{out}", out)
	}
	holder := exec.Command(words[0], words[1:]...)
	holder.Dir = filepath.Join("testdata", c.dir)
	stdout, err := holder.StdoutPipe()
	if err == nil {
		err = holder.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Wait()
	defer holder.Process.Kill()
	if said, err := bufio.NewReader(stdout).ReadString('\n'); said != "held\n" {
		t.Fatalf("the holder says %q, %v", said, err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	ctx, key := context.Background(), args[len(args)-1]
	if err := rdb.Do(ctx, "LOCK", key, 10).Err(); err != redis.Nil {
		t.Fatalf("LOCK while it is held: %v", err)
	}
	holder.Process.Kill()
	token, err := rdb.Do(ctx, "LOCK", key, 10, "WAIT", within).Int64()
	if err != nil {
		t.Fatalf("LOCK after the holder was killed: %v", err)
	}
	if err := rdb.Do(ctx, "UNLOCK", key, token).Err(); err != nil {
		t.Error(err)
	}
}
