//go:build clients

package clients_test

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
)

// helperPrograms use the files of clients that are no packages yet.
var helperPrograms = []clientProgram{
	{name: "rust", dir: "helpers", build: []string{"rustc", "--edition", "2021", "-D", "warnings",
		"-o", "{out}", "rust.rs"}, run: []string{"{out}"}, waits: true},
}

// helperSteps are what every program must report: the lock, its queue, an exception inside, a
// fenced write, a lock that is lost, and a value that is made once.
var helperSteps = []string{"acquire", "wait", "exception", "fence", "lost", "longest", "once"}

func TestHelpers(t *testing.T) {
	t.Parallel()
	bin := proxytest.Binary(t)
	for _, c := range helperPrograms {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel() // they mostly wait
			port := strconv.Itoa(testredis.FreePort(t))
			startForClients(t, port, bin, "--listen", "127.0.0.1:"+port, "--upstream",
				testredis.Start(t).URL())
			out := filepath.Join(t.TempDir(), "out")
			c.builds(t, out)
			c.testReplaced(t, out)
			c.testNoLockproxy(t, out)
			args := append([]string{"127.0.0.1", port}, c.protocols...)
			printed := c.command(t, out, slices.Concat(c.run, args))
			for _, step := range helperSteps {
				if !slices.Contains(strings.Split(printed, "\n"), "ok "+step) {
					t.Errorf("the program left out %s; it printed:\n%s", step, printed)
				}
			}
			c.testKilled(t, out, "127.0.0.1:"+port, append(args, "hold", "helper:killed"), endsByItself)
			if c.forks {
				c.testKilled(t, out, "127.0.0.1:"+port, append(args, "fork", "helper:forked"),
					endsByItself)
			}
			if !c.silent {
				c.testPings(t, out, port, c.protocols)
			}
			c.testNames(t, out, port, c.protocols)
		})
	}
}

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
			c := clientProgram{dir: "helpers"}
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

// testPings looks at what a program sends while it holds a lock, and while it waits for one: that
// keeps balancers from cutting the connection.
func (c clientProgram) testPings(t *testing.T, out, port string, library []string) {
	t.Helper()
	ctx, rdb := t.Context(), proxytest.GoRedis(t, "127.0.0.1:"+port)
	relay := newPingCounter(t, "127.0.0.1:"+port)
	args := slices.Concat([]string{"127.0.0.1", relay.port}, library)
	pings := func(while string) {
		t.Helper()
		from := relay.pings.Load()
		testwait.Until(t, "two pings while it "+while, func() bool {
			return relay.pings.Load() >= from+2
		})
	}
	if c.waits {
		token, err := rdb.Do(ctx, "LOCK", "helper:pinged", 600).Int64()
		if err != nil {
			t.Fatal(err)
		}
		waiter := c.start(t, out, append(args, "wait", "helper:pinged", "0"))
		pings("waits")
		rdb.Do(ctx, "UNLOCK", "helper:pinged", token)
		waiter.saysHeld(t)
	} else {
		c.start(t, out, append(args, "hold", "helper:pinged")).saysHeld(t)
	}
	pings("holds the lock")
	if err := rdb.Do(ctx, "LOCK", "helper:pinged", 600).Err(); err != redis.Nil {
		t.Errorf("LOCK while it is held: %v", err)
	}
}

// testNames looks at how a program names itself as the owner of a lock.
func (c clientProgram) testNames(t *testing.T, out, port string, library []string) {
	t.Helper()
	args := slices.Concat([]string{"127.0.0.1", port}, library, []string{"hold", "helper:named"})
	holder := c.start(t, out, args)
	holder.saysHeld(t)
	info := proxytest.GoRedis(t, "127.0.0.1:"+port).Do(t.Context(), "LOCKINFO", "helper:named")
	host, _ := os.Hostname()
	want := fmt.Sprintf("@%s:%d:", host, holder.Process.Pid)
	if text := fmt.Sprint(info.Val()); !strings.Contains(text, want) {
		t.Errorf("no owner with %q: %s", want, text)
	}
}

// pingCounter relays to a proxy and counts the clients' PINGs.
type pingCounter struct {
	port  string
	pings atomic.Int64
}

func newPingCounter(t *testing.T, proxy string) *pingCounter {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &pingCounter{}
	_, c.port, _ = net.SplitHostPort(ln.Addr().String())
	var relays sync.WaitGroup
	relays.Go(func() { // ends with the listener
		for {
			client, err := ln.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", proxy)
			if err != nil {
				client.Close()
				continue
			}
			relays.Go(func() { io.Copy(client, server); client.Close() })
			relays.Go(func() { c.relay(server, client); server.Close() })
		}
	})
	t.Cleanup(relays.Wait) // the programs have ended by then
	t.Cleanup(func() { ln.Close() })
	return c
}

func (c *pingCounter) relay(to, from net.Conn) {
	for in := bufio.NewReader(from); ; {
		line, err := in.ReadString('\n')
		if strings.EqualFold(strings.TrimSpace(line), "PING") {
			c.pings.Add(1)
		}
		if _, failed := io.WriteString(to, line); err != nil || failed != nil {
			return
		}
	}
}
