package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"lockproxy/internal/test/testredis"
)

// Invalid flags about Sentinels and replicas are refused in one line, which never shows a password.
func TestDurabilityOptions(t *testing.T) {
	for args, want := range map[string]string{
		"--min-replicas=-1": "--min-replicas: want a number " +
			`from 0 to 1000, not "-1"`,
		"--replica-timeout 0s": "--replica-timeout: want a time " +
			"from 1ms to 1h,",
		"--takeover-guard=-1s": "--takeover-guard: want a time " +
			"from 0s to 1h,",
		"--failover-hold 25h": "--failover-hold: want a time " +
			"from 0s to 24h,",
		"--require-fsync": "--require-fsync needs --upstream: the in-memory store has no disk",
		"--min-replicas 1": "--min-replicas needs --upstream: the in-memory store has no " +
			"replicas",
		"--sentinel-password " + secret: "write --upstream as " +
			"redis+sentinel://",
		"--upstream redis://h --sentinel-user x": "write --upstream as " +
			"redis+sentinel://",
		"--upstream redis+sentinel://h": "names no group",
		"--upstream redis+sentinel://h:x/g": "addresses are not " +
			"host:port,host:port",
		"--upstream redis+sentinel://h:1,,k:2/g": "addresses are not " +
			"host:port,host:port",
		"--upstream redis+sentinel://h/g/x": "want a database's " +
			"number behind the group",
		"--upstream redis+sentinel://h/g?read_timeout=3":   `option "read_timeout"`,
		"--upstream redis+sentinel://h/g?skip_verify=true": `option "skip_verify"`,
		"--upstream redis+sentinel://u:" + secret +
			"#x@h/g": "in a password written as",
		"--upstrem redis+sentinel://h/g?sentinel_password=" + secret: "unknown flag --upstrem",
		"redis+sentinel://h/g?sentinel_password=" + secret +
			"&x=1": "sentinel_password=(hidden)&x=1",
		"--max-clients=redis+sentinel://h/g?sentinel_password=" +
			secret: "--max-clients: want a number",
		"--upstream redis+sentinel://h/g --upstream-tls-ca x": "--upstream-tls-ca is for TLS",
	} {
		var out, errs bytes.Buffer
		status := run(strings.Fields(args), &out, &errs)
		if printed := out.String() + errs.String(); status != exitUsage ||
			!strings.Contains(printed, want) || strings.Contains(printed, secret) {
			t.Errorf("%s: status %d: %s", args, status, printed)
		}
	}
}

func TestDurabilityOptionsBecomeConfiguration(t *testing.T) {
	t.Setenv("LOCKPROXY_SENTINEL_PASSWORD", secret)
	opts, _, err := parseOptions(strings.Fields("--upstream "+
		"rediss+sentinel://u:p@h,[::1]:7000/mymaster/3?skip_verify=true "+
		"--min-replicas 2 --require-fsync --replica-timeout 50ms --takeover-guard 1s "+
		"--failover-hold 30s"),
		&bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	d := opts.serverConfig(opts.upstream, hclog.NewNullLogger()).Locks.Durability
	if d.MinReplicas != 2 || !d.RequireFsync || d.ReplicaTimeout != 50*time.Millisecond ||
		d.TakeoverGuard != time.Second || d.FailoverHold != 30*time.Second {
		t.Errorf("%+v", d)
	}
	u := opts.upstream
	if got := u.String(); got != "mymaster (by the Sentinels at h:26379, [::1]:7000)" {
		t.Errorf("upstream %s", got)
	}
	if id := u.Initial; id.User != "u" || id.Password != "p" || id.DB != 3 || !u.Moves() ||
		u.TLS() == nil || u.TLS().ServerName != "" {
		t.Errorf("%+v, TLS %v", id, u.TLS())
	}
}

// check and the log say if a server can't tell what is on its disk; so is an appendfsync with which
// locks would be late, or never be given out.
func TestRequireFsyncIsLookedAt(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	flags := []string{"--upstream", server.URL(), "--require-fsync"}
	knows := server.KnowsWaitaof()
	line := "FAIL commands the server has no WAITAOF, for LOCK with --require-fsync (Redis 7.2)"
	if knows {
		line = `FAIL persistence WAITAOF answers "ERR WAITAOF cannot be used when`
	}
	wantLines(t, check(t, 1, flags...), line)
	p := start(t, append(flags, "--listen", "127.0.0.1:0")...)
	p.waitFor("[WARN]  lockproxy: lock commands are answered with errors, unless clients log in " +
		"as another user; lockproxy check says more: missing=")
	p.waitFor(strings.ReplaceAll(strings.TrimPrefix(strings.TrimPrefix(line,
		"FAIL commands "), "FAIL persistence "), `"`, `\"`))

	status := map[bool]int{false: 1}[knows]
	late := "WARN persistence appendonly with appendfsync everysec: a lock can take 2s to be on " +
		"disk, and --replica-timeout is 500ms"
	synced := "PASS persistence appendonly with appendfsync everysec"
	if strings.Contains(server.Ask("INFO", "server"), "server_name:valkey") {
		late = "WARN persistence appendonly with appendfsync everysec: Valkey 8.1 answers WAITAOF"
		synced = late
	}
	for _, c := range []struct {
		appendfsync, timeout string
		status               int
		line                 string
	}{
		{"always", "500ms", status, "PASS persistence appendonly with appendfsync always"},
		{"everysec", "500ms", status, late},
		{"everysec", "2s", status, synced},
		{"no", "2s", 1, "FAIL persistence appendonly with appendfsync no"},
	} {
		server.Ask("CONFIG", "SET", "appendonly", "yes")
		server.Ask("CONFIG", "SET", "appendfsync", c.appendfsync)
		wantLines(t, check(t, c.status, append(flags, "--replica-timeout", c.timeout)...), c.line)
	}
}
