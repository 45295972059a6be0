package main

import (
	"bytes"
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
)

// listenAsSystemd returns a path for NOTIFY_SOCKET, and what reads the next state.
func listenAsSystemd(t *testing.T) (path string, next func() string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "notify")
	told, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { told.Close() })
	return path, func() string {
		t.Helper()
		buf := make([]byte, 256)
		told.SetReadDeadline(testwait.Deadline())
		n, err := told.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		return string(buf[:n])
	}
}

// It tells systemd again and again that it is alive, also while Redis hangs, if systemd wants to know
// that of this process.
func TestSystemdIsToldThatItLives(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	server.Pause()
	path, next := listenAsSystemd(t)
	p := spawn(t, []string{"NOTIFY_SOCKET=" + path, "WATCHDOG_USEC=300000"}, "--listen",
		"127.0.0.1:0", "--upstream", server.URL())
	for i, want := range []string{"READY=1", "WATCHDOG=1", "WATCHDOG=1"} {
		if got := next(); got != want {
			t.Errorf("%d: %q, want %q", i, got, want)
		}
	}
	server.Resume()
	if status := p.signal(syscall.SIGTERM); status != 0 {
		t.Errorf("status %d:\n%s", status, p.said())
	}
}

// It is told nothing while the process hangs, which the log says.
func TestSystemdIsNotToldThatAHungProcessLives(t *testing.T) {
	path, next := listenAsSystemd(t)
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "3000")
	var out bytes.Buffer
	log := newLogger(&options{loggingOptions: loggingOptions{LogLevel: "info",
		LogFormat: "text"}}, &out)
	asked := 0
	ctx, cancel := context.WithCancel(t.Context())
	watchdog(ctx, func(once context.Context) error {
		if asked++; asked <= 2 {
			return nil
		}
		if asked == 5 {
			cancel()
		}
		<-once.Done()
		return errors.New("loop 1 does not answer")
	}, log)
	notify("MARKER=1", log)
	for i, want := range []string{"WATCHDOG=1", "WATCHDOG=1", "MARKER=1"} {
		if got := next(); got != want {
			t.Errorf("%d: %q, want %q", i, got, want)
		}
	}
	if n := strings.Count(out.String(), "this process hangs"); n != 2 {
		t.Errorf("%d lines:\n%s", n, out.String())
	}
}

// A proxy tells systemd when clients can connect, and when it stops. One that can't start never
// says that it is ready.
func TestSystemdIsTold(t *testing.T) {
	server := testredis.Start(t)
	path, next := listenAsSystemd(t)
	socket := filepath.Join(t.TempDir(), "lockproxy.sock")
	args := []string{"--listen", "unix://" + socket, "--upstream", server.URL()}
	p := spawn(t, []string{"NOTIFY_SOCKET=" + path}, args...)
	if got := next(); got != "READY=1" {
		t.Errorf("%q", got)
	}
	nc, err := net.Dial("unix", socket)
	if got := ask(t, nc, err, "PING"); got != "+PONG\r\n" {
		t.Errorf("PING once it is ready: %q", got)
	}
	second := spawn(t, []string{"NOTIFY_SOCKET=" + path}, args...)
	if status := second.status(); status != exitFailure {
		t.Errorf("a second one: status %d", status)
	}
	if status := p.signal(syscall.SIGTERM); status != 0 {
		t.Errorf("status %d:\n%s", status, p.said())
	}
	if got := next(); got != "STOPPING=1" {
		t.Errorf("%q", got)
	}
	p = spawn(t, []string{"NOTIFY_SOCKET=" + path + ".gone"}, args...)
	p.waitFor("cannot notify systemd")
	if !strings.Contains(p.said(), "serving") {
		t.Errorf("it doesn't serve:\n%s", p.said())
	}
}
