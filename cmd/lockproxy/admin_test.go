package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"lockproxy/internal/test/testredis"
)

func fetch(t *testing.T, url string) (int, string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text)
}

// The admin server is there when it is asked for, has figures of this process, and keeps its token
// secret.
func TestAdminOfProcess(t *testing.T) {
	redis := testredis.Start(t)
	addr, admin := fmt.Sprintf("127.0.0.1:%d", testredis.FreePort(t)), fmt.Sprintf("127.0.0.1:%d",
		testredis.FreePort(t))
	p := start(t, "--listen", addr, "--upstream", redis.URL(), "--admin", admin, "--admin-token",
		secret+secret+secret, "--log-level", "trace")
	nc, err := net.Dial("tcp", addr)
	if got := ask(t, nc, err, "LOCK a 600"); !strings.HasPrefix(got, ":") {
		t.Errorf("LOCK: %q", got)
	}
	for path, want := range map[string]string{
		"/healthz": "ok\n", "/readyz": "ready\n",
		"/metrics": "\nlockproxy_locks_acquired_total 1\n", "/debug/pprof/": "404",
	} {
		if _, got := fetch(t, "http://"+admin+path); !strings.Contains(got, want) {
			t.Errorf("%s: %.300q, want %q in it", path, got, want)
		}
	}
	p.waitFor("admin=http://" + admin + "/ can_release_locks=true")
	if status := p.signal(syscall.SIGTERM); status != 0 {
		t.Errorf("status %d:\n%s", status, p.said())
	}
}

func TestAdminAddressInUse(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	p := spawn(t, nil, "--listen", "127.0.0.1:0", "--upstream", "redis://127.0.0.1:1", "--admin",
		ln.Addr().String())
	if status := p.status(); status != exitFailure ||
		!strings.Contains(p.said(), "choose another --admin") {
		t.Errorf("status %d:\n%s", status, p.said())
	}
}

func TestAdminOptions(t *testing.T) {
	for _, test := range []struct{ args, want string }{
		{"--admin-pprof", "need --admin"},
		{"--admin-token abcdefghijklmnop", "need --admin"},
		{"--admin 127.0.0.1:0 --admin-token " + secret, "too short"},
		{"--slow-wait -1s", "--slow-wait"}, {"--metric-shapes -1", "--metric-shapes"},
		{"--admin-url http://h/", "need --admin"},
		{"--admin :0 --admin-url proxy-2:6390", "want a URL such as"},
		{"--admin :0 --admin-url http://u:" + secret + "@h/", "want a URL such as"},
	} {
		_, err := parse(strings.Fields(test.args), io.Discard)
		if err == nil || !strings.Contains(err.Error(), test.want) ||
			strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", test.args, err)
		}
	}
}
