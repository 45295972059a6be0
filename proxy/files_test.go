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

// Each client that is let in has files for its own connection to the upstream, and the proxy some
// for itself.
func TestClientsByFiles(t *testing.T) {
	u, err := upstream.Parse("redis://127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		files    int
		embedded bool
		want     int
	}{
		{256, false, 112}, {256, true, 74}, {20000, false, 9984}, {10, false, 1},
	} {
		cfg := Config{Upstream: u, Files: test.files, Embedded: test.embedded}
		if got := cfg.clientsByFiles(); got != test.want {
			t.Errorf("%+v: %d", test, got)
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
