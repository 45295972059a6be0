package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
)

// pings connects again and again and asks something, which it counts in asked, until ctx ends.
func pings(ctx context.Context, t *testing.T, network, addr string, asked *atomic.Int64) {
	for ; ctx.Err() == nil; asked.Add(1) {
		nc, err := net.Dial(network, addr)
		if err != nil {
			t.Errorf("connection %d: %v", asked.Load(), err)
			return
		}
		nc.SetDeadline(testwait.Deadline())
		answer := make([]byte, 64)
		n, err := nc.Write([]byte("PING\r\n"))
		if err == nil {
			n, err = nc.Read(answer)
		}
		if err != nil || string(answer[:n]) != "+PONG\r\n" {
			t.Errorf("connection %d: %q, %v", asked.Load(), answer[:n], err)
		}
		nc.Close()
	}
}

// Each of three processes takes over from the one before; a client that connects meanwhile is
// served, and a connection that exists is closed with the answer to its next command. Of the admin
// pages the same is true.
func TestHandover(t *testing.T) {
	t.Parallel()
	redis := testredis.Start(t)
	dir := t.TempDir()
	for _, listen := range []string{fmt.Sprintf("127.0.0.1:%d", testredis.FreePort(t)), "unix://" +
		filepath.Join(dir, "x.sock")} {
		network, addr := "tcp", listen
		if path, ok := strings.CutPrefix(listen, "unix://"); ok {
			network, addr = "unix", path
		}
		admin := fmt.Sprintf("127.0.0.1:%d", testredis.FreePort(t))
		args := []string{"--listen", listen, "--upstream", redis.URL(), "--admin", admin,
			"--handover", filepath.Join(dir, "handover.sock")}
		old := start(t, args...)
		ctx, stop := context.WithCancel(context.Background())
		var asking sync.WaitGroup
		var asked atomic.Int64
		asking.Go(func() { pings(ctx, t, network, addr, &asked) }) // ends with ctx
		for range 3 {
			stays, err := net.Dial(network, addr)
			if err == nil {
				_, err = io.WriteString(stays, "PI") // who has begun a request is not idle
			}
			if err != nil {
				t.Fatal(err)
			}
			heir := start(t, args...)
			old.waitFor("another process has taken over")
			if got := ask(t, stays, nil, "NG"); got != "+PONG\r\n" {
				t.Errorf("the connection to the old process: %q", got)
			}
			if status := old.status(); status != 0 {
				t.Errorf("the old process: status %d\n%s", status, old.said())
			}
			testwait.Until(t, "the admin pages are those of the new process, which is ready",
				func() bool {
					resp, err := http.Get("http://" + admin + "/readyz")
					return err == nil && resp.StatusCode == http.StatusOK
				})
			old = heir
			next := asked.Load() + 10
			testwait.Until(t, "clients are served by the new process",
				func() bool { return asked.Load() >= next || t.Failed() })
		}
		stop()
		asking.Wait()
		if status := old.signal(syscall.SIGTERM); status != 0 {
			t.Errorf("the last process: status %d\n%s", status, old.said())
		}
		for _, path := range []string{addr, filepath.Join(dir, "handover.sock")} {
			if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s after the end: %v", path, err)
			}
		}
	}
}

// A process that can't take over leaves the running one as it was.
func TestHandoverThatFails(t *testing.T) {
	redis := testredis.Start(t)
	path := filepath.Join(t.TempDir(), "handover.sock")
	addr := fmt.Sprintf("127.0.0.1:%d", testredis.FreePort(t))
	args := []string{"--upstream", redis.URL(), "--handover", path, "--listen"}
	running := start(t, append(args, addr)...)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket: %v, %v", info, err)
	}
	other := spawn(t, nil, append(args, "127.0.0.1:1")...)
	<-other.ended
	if other.cmd.ProcessState.ExitCode() != exitFailure ||
		!strings.Contains(other.said(), "does not listen on 127.0.0.1:1: give this one the same "+
			"--listen") {
		t.Errorf("a process with another --listen says:\n%s", other.said())
	}
	nc, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	nc.Close()
	running.waitFor("this one continues")
	nc, err = net.Dial("tcp", addr)
	if got := ask(t, nc, err, "PING"); got != "+PONG\r\n" {
		t.Errorf("PING: %q", got)
	}
	nc, err = net.Dial("unix", path) // and says nothing, while the process is asked to end
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	nc.Read(make([]byte, 1))
	if status := running.signal(syscall.SIGTERM); status != 0 {
		t.Errorf("status %d\n%s", status, running.said())
	}
}

// With --listen systemd the socket is the one that systemd has opened, and stays open when the
// process ends.
func TestSocketOfSystemd(t *testing.T) {
	t.Parallel()
	redis := testredis.Start(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	file, err := ln.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for range 2 {
		p := &process{t: t,
			cmd: exec.Command("sh", "-c", `LISTEN_PID=$$ LISTEN_FDS=1 exec "$0" "$@"`, os.Args[0],
				"--listen", "systemd", "--upstream", redis.URL()),
			ended: make(chan struct{})}
		p.cmd.Env, p.cmd.ExtraFiles = append(os.Environ(), asProgram+"=1"), []*os.File{file}
		p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
		nc, err := net.Dial("tcp", ln.Addr().String()) // before the process is there
		if err := p.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		go func() { // ends with the process, which signal ends
			defer close(p.ended)
			p.cmd.Wait()
		}()
		if got := ask(t, nc, err, "PING"); got != "+PONG\r\n" {
			t.Errorf("PING: %q", got)
		}
		if status := p.signal(syscall.SIGTERM); status != 0 {
			t.Errorf("status %d\n%s", status, p.said())
		}
	}
	p := spawn(t, nil, "--listen", "systemd")
	<-p.ended
	if p.cmd.ProcessState.ExitCode() != exitFailure ||
		!strings.Contains(p.said(), "start it by a .socket unit") {
		t.Errorf("without systemd:\n%s", p.said())
	}
}

// While --shutdown-delay lasts clients are served as before, and /readyz says no. It ends by a second
// signal, or by itself.
func TestShutdownDelay(t *testing.T) {
	t.Parallel()
	redis := testredis.Start(t)
	admin, addr := fmt.Sprintf("127.0.0.1:%d", testredis.FreePort(t)), fmt.Sprintf("127.0.0.1:%d",
		testredis.FreePort(t))
	p := start(t, "--listen", addr, "--upstream", redis.URL(), "--admin", admin, "--shutdown-delay",
		"1h")
	p.cmd.Process.Signal(syscall.SIGTERM)
	p.waitFor("/readyz says no")
	resp, err := http.Get("http://" + admin + "/readyz")
	if err != nil || resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("/readyz: %v, %v", resp, err)
	}
	for range 2 {
		nc, err := net.Dial("tcp", addr)
		if got := ask(t, nc, err, "PING"); got != "+PONG\r\n" {
			t.Errorf("PING: %q", got)
		}
	}
	if status := p.signal(syscall.SIGTERM); status != 0 {
		t.Errorf("status %d\n%s", status, p.said())
	}
	p = start(t, "--listen", addr, "--upstream", redis.URL(), "--shutdown-delay", "1ms")
	if status := p.signal(syscall.SIGTERM); status != 0 {
		t.Errorf("status %d\n%s", status, p.said())
	}
}
