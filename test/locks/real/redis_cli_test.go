package real_test

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
)

func TestRedisCLI(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := proxytest.StartBy(t, testredis.TCP, server.URL(), nil)
	_, port, _ := strings.Cut(p.Addr, ":")
	cli := func(args ...string) string {
		out, err := exec.Command("redis-cli", append([]string{"-p", port, "--no-raw"},
			args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("redis-cli %v: %v: %s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	token, ok := strings.CutPrefix(cli("LOCK", "job", "300"), "(integer) ")
	if !ok {
		t.Fatalf("LOCK: %q", token)
	}
	for _, step := range []struct{ command, want string }{
		{"LOCK job 300", "(nil)"},
		{"UNLOCK job 1", "(integer) 0"},
		{"UNLOCK job " + token, "(integer) 1"},
		{"-3 LOCK job abc",
			`(error) ERR timeout is not a float or out of range: "abc" ` +
				`(seconds, greater than 0, at most 86400)`},
		{"SET a 1", "OK"},
		{"EVAL return{1,2} 0", "1) (integer) 1\n2) (integer) 2"},
	} {
		if got := cli(strings.Fields(step.command)...); got != step.want {
			t.Errorf("%s: %q, want %q", step.command, got, step.want)
		}
	}
}

// cli is a redis-cli process that takes its commands from a pipe.
type cli struct {
	t    *testing.T
	cmd  *exec.Cmd
	in   io.WriteCloser
	outs *bufio.Scanner
}

func startCLI(t *testing.T, addr string) *cli {
	_, port, _ := strings.Cut(addr, ":")
	c := &cli{t: t, cmd: exec.Command("redis-cli", "-p", port)}
	c.in, _ = c.cmd.StdinPipe()
	out, _ := c.cmd.StdoutPipe()
	c.outs = bufio.NewScanner(out)
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.cmd.Process.Kill(); c.cmd.Wait() })
	return c
}

func (c *cli) do(command string) string {
	fmt.Fprintln(c.in, command)
	if !c.outs.Scan() {
		c.t.Fatalf("%s: %v", command, c.outs.Err())
	}
	return c.outs.Text()
}

// A holder was paused past its timeout: no command with its token has any effect. A write without
// FENCE has: that is what FENCE is for.
func TestPausedHolder(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := proxytest.StartBy(t, testredis.TCP, server.URL(), nil)
	holder, next := startCLI(t, p.Addr), proxytest.Dial(t, p.Addr)
	token := holder.do("LOCK job 300")
	holder.cmd.Process.Signal(syscall.SIGSTOP)
	server.Ask("PEXPIRE", "job", "1")
	taken := next.Lock("job 300 WAIT 300")
	next.Expect("SET x next", "+OK\r\n")
	holder.cmd.Process.Signal(syscall.SIGCONT)
	for command, want := range map[string]string{"UNLOCK job " + token: "0", "RELOCK job " + token +
		" 300": "0", "UNLOCK job": "0"} {
		if got := holder.do(command); got != want {
			t.Errorf("%s: %q, want %q", command, got, want)
		}
	}
	if got := holder.do("FENCE job " + token + " SET x late"); !strings.HasPrefix(got, "FENCED ") {
		t.Errorf("FENCE: %q", got)
	}
	next.Expect("GET x", "$4\r\nnext\r\n")
	holder.do("") // redis-cli separates an error from its next output
	holder.do("SET x plain")
	next.Expect("GET x", "$5\r\nplain\r\n")
	next.Expect(proxytest.Unlock("job", taken), ":1\r\n")
}
