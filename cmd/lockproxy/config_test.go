package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testtls"
)

func configFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "lockproxy.toml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// Flags override the environment, which overrides the file. The file can set whatever flags can.
func TestConfigFile(t *testing.T) {
	name := configFile(t, `
# comments are for people
max-clients = 5
max-bulk = "64mb"
max-inline = "1kb"
max-timeout = "2h"
listen = "127.0.0.1:7000"
proxy-protocol-from = ["10.0.0.0/8", "::1"]
timestamp-unit = "s"
`)
	t.Setenv("LOCKPROXY_MAX_BULK", "32mb")
	t.Setenv("LOCKPROXY_LISTEN", "127.0.0.1:7001")
	check := func(args ...string) {
		t.Helper()
		opts, _, err := parseOptions(append(args, "--listen", "127.0.0.1:7002"), &bytes.Buffer{})
		if err != nil {
			t.Fatal(err)
		}
		if opts.MaxClients != 5 || opts.MaxBulk != 32<<20 || opts.MaxInline != 1<<10 ||
			opts.MaxTimeout != 2*time.Hour || opts.Listen != "127.0.0.1:7002" ||
			len(opts.networks) != 2 || opts.TimestampUnit != "s" ||
			opts.FenceRetention != 10*time.Minute {
			t.Errorf("%+v", opts)
		}
	}
	check("--config", name)
	check("serve", "--config="+name)
	t.Setenv("LOCKPROXY_CONFIG", name)
	check()
	if _, err := parse([]string{"run", "--key", "a", "true"}, &bytes.Buffer{}); err != nil {
		t.Errorf("run with LOCKPROXY_CONFIG set: %v", err)
	}
}

func TestConfigFileErrors(t *testing.T) {
	for text, want := range map[string]string{
		"max-client = 5":                             `unknown setting "max-client"`,
		"config = \"x\"":                             `unknown setting "config"`,
		"version = true":                             `unknown setting "version"`,
		"key = \"x\"":                                `unknown setting "key"`,
		"[limits]\nmax-clients = 5":                  `unknown setting "limits"`,
		"max-clients = { n = 5 }":                    "max-clients: want a string, a number",
		"max-clients = \"many\"":                     "--max-clients: want a number from 1 to",
		"max-clients = 0":                            `2147483647, not "0"`,
		"max-timeout = 5":                            "--max-timeout: ",
		"listen-mode = 0o660":                        `listen-mode: want a string, as in "0770"`,
		"log-level = \"loud\"":                       "--log-level must be one of",
		"\nupstream = redis://u:" + secret + "@h":    "line 2 is not TOML",
		"upstream = \"redis://u:" + secret + "#@h\"": "--upstream: not a usable redis URL",
		"upstream = \"redis://u:" + secret + "@h\"\nupstream = 5": "" +
			"line 2 sets what an earlier line has set",
		"max-clients = \"redis://u:" + secret + "@h\"": "--max-clients",
	} {
		var out, errs bytes.Buffer
		name := configFile(t, text)
		if status := run([]string{"--config", name}, &out, &errs); status != exitUsage {
			t.Errorf("%q: status %d", text, status)
		}
		if said := errs.String(); !strings.Contains(said, want) || strings.Contains(said, secret) ||
			!strings.HasPrefix(said, "lockproxy: --config "+name+": ") ||
			strings.Count(said, "\n") != 1 {
			t.Errorf("%q: %s", text, said)
		}
	}
	var out, errs bytes.Buffer
	if status := run([]string{"--config", "/nowhere/x.toml"}, &out, &errs); status != exitUsage ||
		!strings.Contains(errs.String(), "--config: open /nowhere/x.toml") {
		t.Errorf("no file: status %d, %s", status, &errs)
	}
}

// The configuration file that packages bring shows the defaults, but for what it sets, and what is
// off.
func TestPackagedConfigShowsTheDefaults(t *testing.T) {
	text, err := os.ReadFile("../../deploy/lockproxy.toml")
	if err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile(`(?m)^# ([a-z-]+ = )`).ReplaceAllString(string(text), "$1")
	if strings.Count(shown, "\n# ") == strings.Count(string(text), "\n# ") {
		t.Fatal("nothing is shown")
	}
	opts, _, err := parseOptions([]string{"--config", configFile(t, shown)}, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	defaults, _, err := parseOptions(nil, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(difference(defaults, opts), " "); got != "admin config upstream" {
		t.Errorf("it differs from the defaults in %s", got)
	}
}

// SIGHUP takes over what can change, names the rest, and with a bad file changes nothing.
func TestHangupReadsConfigAgain(t *testing.T) {
	server := testredis.Start(t)
	addr := fmt.Sprintf("127.0.0.1:%d", testredis.FreePort(t))
	name := configFile(t, "")
	common := fmt.Sprintf("listen = %q\nupstream = %q\n", addr, server.URL())
	write := func(more string) {
		if err := os.WriteFile(name, []byte(common+more), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("max-clients = 1\n")
	p := start(t, "--config", name, "--max-args", "1000")
	first := redis.NewClient(testredis.Patient(&redis.Options{
		Addr: addr, PoolSize: 1, DisableIdentity: true,
		Protocol: 2}))
	defer first.Close()
	ctx := context.Background()
	if err := first.Ping(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	second := func() string {
		nc, err := net.Dial("tcp", addr)
		return ask(t, nc, err, "PING")
	}
	if got := second(); !strings.Contains(got, "max number of clients") {
		t.Errorf("a second client: %q", got)
	}
	hangup := func(line string) {
		t.Helper()
		p.cmd.Process.Signal(syscall.SIGHUP)
		p.waitFor(line)
	}
	hangup("nothing has changed")
	// One more than two, since a client may come before the proxy has noticed that the last has left.
	write("max-clients = 3\nmax-bulk = \"1mb\"\nlog-level = \"debug\"\nmax-args = " +
		"2000\nslow-wait = \"20ms\"\n")
	hangup("changed=\"log-level max-clients slow-wait\"")
	if !strings.Contains(p.said(), `take effect only after a restart: settings=max-bulk`) {
		t.Errorf("no word of max-bulk, or more than that:\n%s", p.said())
	}
	if got := second(); got != "+PONG\r\n" {
		t.Errorf("a second client: %q", got)
	}
	if err := first.Do(ctx, "LOCK", "job", 300).Err(); err != nil {
		t.Fatal(err)
	}
	if err := first.Do(ctx, "LOCK", "job", 300, "WAIT", 0.1).Err(); !errors.Is(err, redis.Nil) {
		t.Errorf("LOCK of a held lock: %v", err)
	}
	p.waitFor("a client has waited long for a lock")
	write("max-clients = 1\nlog-level = \"loud\"\n")
	hangup("[ERROR] lockproxy: SIGHUP: the new settings are wrong; the previous ones stay in use " +
		"until the next SIGHUP: error=\"--config " + name + ": --log-level must be one of")
	if got := second(); got != "+PONG\r\n" {
		t.Errorf("a second client: %q", got)
	}
	if n := strings.Count(p.said(), "[ERROR]"); n != 1 {
		t.Errorf("%d error lines:\n%s", n, p.said())
	}
	if err := first.Ping(ctx).Err(); err != nil {
		t.Errorf("the client of before: %v", err)
	}
}

// The files of TLS can move; switching TLS off takes a restart, and its files stay in use until
// then.
func TestHangupMovesCertificates(t *testing.T) {
	server := testredis.Start(t)
	ca := testtls.NewAuthority(t)
	pairs := []testtls.Pair{ca.Issue(t, "first"), ca.Issue(t, "second")}
	expired := ca.IssueExpired(t, "expired")
	wantLines(t, check(t, 1, "--tls-cert", expired.CertFile, "--tls-key", expired.KeyFile),
		"FAIL tls --tls-cert "+expired.CertFile+" is valid from ")
	addr := fmt.Sprintf("127.0.0.1:%d", testredis.FreePort(t))
	name := configFile(t,
		fmt.Sprintf("tls-cert = %q\ntls-key = %q\n", pairs[0].CertFile, pairs[0].KeyFile))
	p := start(t, "--config", name, "--listen", addr, "--upstream", server.URL())
	shows := func(want string) {
		t.Helper()
		if got := shownName(t, addr, ca); got != want {
			t.Errorf("certificate of %q, want %q", got, want)
		}
	}
	shows("first")
	for _, c := range []struct{ text, line, shows string }{
		{fmt.Sprintf("tls-cert = %q\ntls-key = %q\n", pairs[1].CertFile, pairs[0].KeyFile),
			"the new settings are wrong", "first"},
		{fmt.Sprintf("tls-cert = %q\ntls-key = %q\n", pairs[1].CertFile, pairs[1].KeyFile),
			`changed="tls-cert tls-key"`, "second"},
		{"", `restart: settings="tls-cert tls-key"`, "second"},
	} {
		os.WriteFile(name, []byte(c.text), 0o600)
		p.cmd.Process.Signal(syscall.SIGHUP)
		p.waitFor(c.line)
		shows(c.shows)
	}
	os.WriteFile(name, []byte(fmt.Sprintf("tls-cert = %q\ntls-key = %q\n", expired.CertFile,
		expired.KeyFile)), 0o600)
	p.cmd.Process.Signal(syscall.SIGHUP)
	p.waitFor("a certificate is not valid now: --tls-cert " + expired.CertFile)
}
