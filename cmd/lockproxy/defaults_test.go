package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/test/testredis"
)

// A value that is missing or misspelt ends lockproxy at start: it must not serve from memory, or
// with other settings than were meant.
func TestMissingAndMisspeltSettingsAreRefused(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		env  string
		want string
	}{
		{env: "LOCKPROXY_UPSTREAM=", want: "--upstream: the value is empty"},
		{env: "LOCKPROXY_UPSTREAM_FILE=", want: "--upstream-file: the value is empty"},
		{args: []string{"--upstream="}, want: "--upstream: the value is empty"},
		{args: []string{"--upstream", " "}, want: "--upstream: the value is empty"},
		{args: []string{"--config", configFile(t, `upstream = ""`)}, want: "the value is empty"},
		{args: []string{"--upstream-file", empty}, want: "--upstream-file: the file " + empty + " is empty"},
		{args: []string{"--upstream-file", "/nowhere/url"}, want: "open /nowhere/url"},
		{args: []string{"--upstream-file", empty, "--upstream", "redis://h"},
			want: "leave one of the two out"},
		{env: "LOCKPROXY_UPSTREEM=redis://:" + secret + "@h",
			want: "unknown environment variable LOCKPROXY_UPSTREEM"},
		{env: "LOCKPROXY_PORT=6380", want: "unknown environment variable LOCKPROXY_PORT"},
		{args: []string{"--listen", "0.0.0.0:6380"}, want: "--listen 0.0.0.0:6380 is open to"},
		{args: []string{"--listen", ":6380"}, want: "--listen :6380 is open to"},
		{args: []string{"--embedded", "--upstream", "redis://h"}, want: "leave one of the two out"},
		{env: "LOCKPROXY_CONFIG=", want: "--config: the value is empty"},
		{env: "LOCKPROXY_ADMIN_TOKEN=", want: "--admin-token: the value is empty"},
		{env: "LOCKPROXY_TLS_CERT= ", want: "--tls-cert: the value is empty"},
		{args: []string{"--config", configFile(t, `log-format = ""`)},
			want: "--log-format: the value is empty"},
	} {
		for _, command := range []string{"serve", "check"} {
			name := strings.Join(append([]string{command, c.env}, c.args...), " ")
			t.Run(name, func(t *testing.T) {
				if name, value, found := strings.Cut(c.env, "="); found {
					t.Setenv(name, value)
				}
				var out, errs bytes.Buffer
				status := run(append([]string{command}, c.args...), &out, &errs)
				want := map[string]int{"serve": exitUsage, "check": exitFailure}[command]
				if said := errs.String(); status != want || !strings.Contains(said, c.want) ||
					strings.Count(said, "\n") != 1 || strings.Contains(said, secret) {
					t.Errorf("status %d, want %d, and in it %q:\n%s%s", status, want, c.want, said,
						&out)
				}
			})
		}
	}
}

// Variables that Kubernetes sets for a service named lockproxy, and those of lockproxy run, do no
// harm.
func TestOtherProgramsVariablesAreLeftAlone(t *testing.T) {
	for name, value := range map[string]string{
		"LOCKPROXY_SERVICE_HOST": "10.0.0.1", "LOCKPROXY_SERVICE_PORT": "6380",
		"LOCKPROXY_SERVICE_PORT_REDIS": "6380", "LOCKPROXY_PORT": "tcp://10.0.0.1:6380",
		"LOCKPROXY_PORT_6380_TCP": "tcp://10.0.0.1:6380", "LOCKPROXY_PORT_6380_TCP_PORT": "6380",
		"LOCKPROXY_PORT_6380_TCP_PROTO": "tcp", "LOCKPROXY_PORT_6380_TCP_ADDR": "10.0.0.1",
		"LOCKPROXY_ADMIN_PORT": "tcp://10.0.0.2:6390", "LOCKPROXY_ADMIN_SERVICE_HOST": "10.0.0.2",
		"LOCKPROXY_KEY": "job", "LOCKPROXY_TOKEN": "1795236369435154",
		"LOCKPROXY_URL": "redis://h:6380",
	} {
		t.Setenv(name, value)
	}
	if _, _, err := parseOptions(nil, io.Discard); err != nil {
		t.Error(err)
	}
}

// Secrets come from files too, without the line's end.
func TestSecretsFromFiles(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	const url = "redis+sentinel://app:" + secret + "@s1:26379/group"
	t.Setenv("LOCKPROXY_ADMIN_TOKEN_FILE", file("token", "0123456789abcdef\n"))
	opts, _, err := parseOptions([]string{"--upstream-file", file("upstream", url+"\n"),
		"--sentinel-password-file", file("password", secret+"\r\n"), "--admin", "127.0.0.1:1"},
		io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if opts.Upstream != url || opts.AdminToken != "0123456789abcdef" ||
		opts.SentinelPassword != secret {
		t.Errorf("%+v", opts)
	}

	cmd, err := parse([]string{"run", "--key", "a", "--url-file",
		file("url", "redis://127.0.0.1:7\n"), "true"}, io.Discard)
	if err != nil || cmd.(*runCommand).proxy.String() != "127.0.0.1:7" {
		t.Errorf("run --url-file: %+v, %v", cmd, err)
	}
}

// A job whose name is missing doesn't share a lock with all others of that kind.
func TestRunWithoutAKeyIsRefused(t *testing.T) {
	var out, errs bytes.Buffer
	status := run([]string{"run", "--key", "", "--", "echo", "ran"}, &out, &errs)
	if status != exitRunFailed || out.Len() > 0 || !strings.Contains(errs.String(),
		"--key: the value is empty") {
		t.Errorf("status %d: %s%s", status, &out, &errs)
	}
}

// The log at start and check warn if clients can connect that Redis itself would have refused.
func TestOpenListenerBeforeAPasswordlessRedis(t *testing.T) {
	// What else is logged of this policy comes behind the warning.
	open := testredis.Start(t, "--maxmemory-policy", "allkeys-lru")
	closed := testredis.Start(t, "--requirepass", secret)
	const line = "the upstream requires no password"
	for _, c := range []struct {
		host string
		of   *testredis.Server
		warn bool
	}{{"0.0.0.0", open, true}, {"127.0.0.1", open, false}, {"0.0.0.0", closed, false}} {
		listen := fmt.Sprintf("%s:%d", c.host, testredis.FreePort(t))
		args := []string{"--listen", listen, "--upstream", "redis://" + c.of.Addr()}
		p := start(t, append([]string{"--log-level", "debug"}, args...)...)
		if c.warn {
			p.waitFor("[WARN]  lockproxy: other machines can connect, and " + line)
		} else if c.of == closed {
			p.waitFor("the upstream wants a login, and --upstream has none")
		} else {
			p.waitFor("would evict locks")
		}
		if said := strings.Contains(p.said(), line); said != c.warn {
			t.Errorf("%v warns: %v\n%s", args, said, p.said())
		}
		if printed := check(t, 0, args...); strings.Contains(printed, line) != c.warn {
			t.Errorf("check %v:\n%s", args, printed)
		}
	}
	wantLines(t, check(t, 0, "--listen", ":1", "--upstream",
		"redis://:"+secret+"@"+closed.Addr()),
		"WARN listen :1 is open to other machines, and every client acts as the user in --upstream")
}

// The in-memory store is named everywhere, and serves other machines only when asked to.
func TestEmbeddedStoreIsNamed(t *testing.T) {
	listen := fmt.Sprintf("0.0.0.0:%d", testredis.FreePort(t))
	admin := fmt.Sprintf("127.0.0.1:%d", testredis.FreePort(t))
	p := start(t, "--embedded", "--listen", listen, "--admin", admin)
	if !strings.Contains(p.said(), "[WARN]  lockproxy: the embedded in-memory store") {
		t.Errorf("no warning:\n%s", p.said())
	}
	reply, err := http.Get("http://" + admin + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	ready, err := io.ReadAll(reply.Body)
	if err != nil || string(ready) != "ready: embedded in-memory store, for trying out\n" {
		t.Errorf("/readyz: %q, %v", ready, err)
	}
	client := redis.NewClient(testredis.Patient(&redis.Options{
		Addr: strings.Replace(listen, "0.0.0.0", "127.0.0.1", 1)}))
	defer client.Close()
	if info := client.Info(t.Context(), "lockproxy").Val(); !strings.Contains(info,
		"\r\nupstream:embedded\r\n") {
		t.Errorf("INFO lockproxy:\n%s", info)
	}
	wantLines(t, check(t, 0, "--embedded", "--listen", listen),
		"WARN upstream the embedded in-memory store")
}
