package testredis_test

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
)

const killed = "LOCKPROXY_TEST_KILLED"

// A process with tests that is killed leaves no server, and a directory only until the next begins.
func TestKilledTests(t *testing.T) {
	if os.Getenv(killed) != "" {
		s := testredis.Start(t)
		fmt.Println("server", s.Addr(), s.Ask("CONFIG", "GET", "dir"))
		fmt.Println()
		select {}
	}
	t.Parallel()
	cmd := exec.Command(os.Args[0], "-test.run=^TestKilledTests$")
	cmd.Env = append(os.Environ(), killed+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := testredis.StartProcess(cmd); err != nil {
		t.Fatal(err)
	}
	addr, dir := "", ""
	for lines := bufio.NewScanner(out); lines.Scan() && lines.Text() != ""; {
		if rest, ok := strings.CutPrefix(lines.Text(), "server "); ok {
			addr, _, _ = strings.Cut(rest, " ")
		}
		if strings.HasPrefix(lines.Text(), "/") {
			dir = lines.Text()
		}
	}
	if _, err := os.Stat(dir); err != nil || addr == "" {
		t.Fatalf("server %q, directory %q: %v", addr, dir, err)
	}
	cmd.Process.Kill()
	cmd.Wait()
	testwait.Until(t, "the server has ended", func() bool {
		nc, err := net.Dial("tcp", addr)
		if err == nil {
			nc.Close()
		}
		return err != nil
	})
	// What the kernel had the server end with is done a moment later.
	testwait.Until(t, "its directory is swept", func() bool {
		testredis.Sweep()
		_, err := os.Stat(dir)
		return os.IsNotExist(err)
	})
}
