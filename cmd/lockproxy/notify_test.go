package main

import (
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"lockproxy/internal/testredis"
	"lockproxy/internal/testwait"
)

// A proxy tells systemd when clients can connect, and when it stops. One that can't start never
// says that it is ready.
func TestSystemdIsTold(t *testing.T) {
	server := testredis.Start(t)
	path := filepath.Join(t.TempDir(), "notify")
	told, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer told.Close()
	next := func() string {
		t.Helper()
		buf := make([]byte, 256)
		told.SetReadDeadline(testwait.Deadline())
		n, err := told.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		return string(buf[:n])
	}
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
	p.waitFor("cannot tell systemd")
	if !strings.Contains(p.said(), "serving") {
		t.Errorf("it doesn't serve:\n%s", p.said())
	}
}
