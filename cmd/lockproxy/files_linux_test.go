package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
)

// With few open files the proxy lets in as many clients as can have connections of their own to
// Redis, all at one time, and sends the others away as Redis does. It warns at the start.
func TestFewOpenFiles(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	addr := fmt.Sprintf("127.0.0.1:%d", testredis.FreePort(t))
	p := spawnBy(t, nil, "sh", "-c", `ulimit -n 160; exec "$0" "$@"`, os.Args[0], "--listen", addr,
		"--upstream", server.URL(), "--max-clients", "300")
	p.waitFor("serving")
	p.waitFor("there are open files for fewer clients than --max-clients")
	var served []*proxytest.Conn
	away := 0
	for range 200 {
		c := proxytest.Dial(t, addr)
		switch got := c.Do("PING"); got {
		case "+PONG\r\n":
			served = append(served, c)
		case "-ERR max number of clients reached\r\n":
			away++
		default:
			t.Fatalf("PING: %q", got)
		}
	}
	if len(served) < 50 || away < 50 {
		t.Errorf("%d clients are served, %d sent away", len(served), away)
	}
	for i, c := range served {
		if got := c.Do("MULTI"); got != "+OK\r\n" {
			t.Fatalf("MULTI of client %d of %d: %q", i, len(served), got)
		}
	}
	for _, c := range served {
		c.Expect("EXEC", "*0\r\n")
	}
	if said := p.said(); strings.Contains(said, "too many open files") ||
		strings.Contains(said, "does not serve") {
		t.Errorf("it says:\n%s", said)
	}
}

// The start says so if replies that clients leave unread would be kept in memory.
func TestTemporaryFilesInMemory(t *testing.T) {
	t.Parallel()
	const said = "replies that clients leave unread are kept in memory"
	disk, memory := "/var/tmp", "/dev/shm"
	for dir, want := range map[string]bool{disk: isTmpfs(disk), memory: isTmpfs(memory)} {
		p := spawn(t, []string{"TMPDIR=" + dir}, "--listen", "127.0.0.1:0")
		p.waitFor("serving")
		if got := strings.Contains(p.said(), said); got != want {
			t.Errorf("%s, in memory %v:\n%s", dir, want, p.said())
		}
	}
}

// isTmpfs reports whether a directory is on tmpfs, by what the kernel says of its mounts.
func isTmpfs(dir string) bool {
	mounts, _ := os.ReadFile("/proc/mounts")
	is, longest := false, 0
	for line := range strings.Lines(string(mounts)) {
		words := strings.Fields(line)
		if at := words[1]; (dir == at || strings.HasPrefix(dir, strings.TrimSuffix(at, "/")+"/")) &&
			len(at) >= longest {
			is, longest = words[2] == "tmpfs", len(at)
		}
	}
	return is
}
