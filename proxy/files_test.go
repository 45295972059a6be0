package proxy

import (
	"bytes"
	"context"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/hashicorp/go-hclog"

	"lockproxy/internal/upstream"
)

// Each client that is let in has files for its own connection to the upstream, or 4,096 are kept
// for those of all, and the proxy has some for itself.
func TestClientsByFiles(t *testing.T) {
	u, err := upstream.Parse("redis://127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		files    int
		embedded bool
		alone    bool // a connection of its own for each client
		want     int
	}{
		{256, false, false, 112}, {256, true, false, 74}, {10, false, false, 1},
		{20000, false, false, 15872}, {20000, false, true, 9984},
	} {
		cfg := Config{Upstream: u, Files: test.files, Embedded: test.embedded, Dedicated: test.alone}
		got := cfg.clientsByFiles()
		if got != test.want {
			t.Errorf("%+v: %d", test, got)
		}
		want := cfg.filesFor(got)
		if cfg.Files = want; want > max(test.files, 34) || cfg.clientsByFiles() < got {
			t.Errorf("%+v: %d clients want %d files", test, got, want)
		}
		cfg.Files, cfg.OtherFiles = test.files+64, 64
		if with := cfg.clientsByFiles(); with != got || cfg.filesFor(got) != want+64 {
			t.Errorf("%+v: %d clients with 64 other files, %d without", test, with, got)
		}
	}
}

// A proxy without open files says so to clients and in its log, and not that the upstream does not
// serve.
func TestOutOfFilesIsNotTheUpstreamsFault(t *testing.T) {
	u, err := upstream.Parse("redis://127.0.0.1:6379")
	if err != nil {
		t.Fatal(err)
	}
	u.Dialer = func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Err: os.NewSyscallError("socket", syscall.EMFILE)}
	}
	var out bytes.Buffer
	s := New(Config{Upstream: u, Logger: hclog.New(&hclog.LoggerOptions{Output: &out})})
	defer s.Close()
	_, failed := u.Dial(t.Context(), upstream.Setup{Identity: u.Initial})
	reply := string(encodeError(failed))
	if !strings.HasPrefix(reply, "-UPSTREAM the proxy has too many open files to connect to ") {
		t.Errorf("the reply is %q", reply)
	}
	s.recordConnect(failed)
	s.recordConnect(failed)
	s.look(t.Context(), s.cfg.DialTimeout, true)
	if err := s.Ready(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "the proxy has") {
		t.Errorf("Ready: %v", err)
	}
	said := out.String()
	if strings.Count(said, "[ERROR] the proxy has too many open files") != 1 ||
		strings.Count(said, "\n") != 1 || strings.Contains(said, "the upstream does not serve") {
		t.Errorf("the log has:\n%s", said)
	}
}
