//go:build clients

package clients_test

import (
	"bufio"
	"cmp"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
)

var pythonProgram = regexp.MustCompile("(?s)\n```python\n(.*?)\n```\n")

// What pages show in Python runs as it is printed, except for the port.
func TestHelperOnPages(t *testing.T) {
	t.Parallel()
	bin := proxytest.Binary(t)
	upstream := testredis.Start(t)
	port := strconv.Itoa(testredis.FreePort(t))
	startForClients(t, port, bin, "--listen", "127.0.0.1:"+port, "--upstream", upstream.URL())
	helpers, err := filepath.Abs("../../clients/python")
	if err != nil {
		t.Fatal(err)
	}
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
			c := clientProgram{dir: "conformance"}
			c.command(t, "", []string{"env", "PYTHONPATH=" + helpers,
				"/usr/bin/python3", "-c", strings.ReplaceAll(m[1], "6380", port)})
		}
		if written := upstream.Ask("GETDEL", writes[0]); written != writes[1] {
			t.Errorf("%s: %s is %q", page, writes[0], written)
		}
	}
}

// testKilled kills a program while it holds a lock for ten minutes, which nothing here waits for.
func (c clientProgram) testKilled(t *testing.T, out, addr string, args []string,
	ends func(*testing.T, *redis.Client, string)) {
	t.Helper()
	holder := c.start(t, out, args)
	holder.saysHeld(t)
	rdb, key := proxytest.GoRedis(t, addr), args[len(args)-1]
	if err := rdb.Do(t.Context(), "LOCK", key, 600).Err(); err != redis.Nil {
		t.Fatalf("LOCK while it is held: %v", err)
	}
	holder.Process.Kill()
	ends(t, rdb, key)
	token, err := rdb.Do(t.Context(), "LOCK", key, 600, "WAIT", 0).Int64()
	if err != nil {
		t.Fatalf("LOCK after the holder was killed: %v", err)
	}
	if err := rdb.Do(t.Context(), "UNLOCK", key, token).Err(); err != nil {
		t.Error(err)
	}
}

// endsByItself: the lock of a session is free as soon as its holder is dead.
func endsByItself(*testing.T, *redis.Client, string) {}

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
