package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
)

// What makes no sense about Sentinels and replicas is refused in a line, which never shows a
// password.
func TestDurabilityOptions(t *testing.T) {
	for args, want := range map[string]string{
		"--min-replicas=-1": "--min-replicas is -1: " +
			"want 0 to 1000",
		"--replica-timeout 0s": "--replica-timeout is " +
			"0s: want 1ms to 1h0m0s",
		"--takeover-guard=-1s": "--takeover-guard is " +
			"-1s: want 0s to 1h0m0s",
		"--failover-hold 25h": "--failover-hold is " +
			"25h0m0s: want 0s to 24h0m0s",
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
			"#x@h/g": "with # / ? @ in a password written as",
		"--upstrem redis+sentinel://h/g?sentinel_password=" + secret: "unknown flag --upstrem",
		"redis+sentinel://h/g?sentinel_password=" + secret +
			"&x=1": "sentinel_password=(hidden)&x=1",
		"--max-clients=redis+sentinel://h/g?sentinel_password=" +
			secret: "--max-clients: expected a valid",
		"--upstream redis+sentinel://h/g --upstream-ca x": "--upstream-ca is for TLS",
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
		"--min-replicas 2 --replica-timeout 50ms --takeover-guard 1s --failover-hold 30s"),
		&bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	d := opts.serverConfig(opts.upstream, hclog.NewNullLogger()).Locks.Durability
	if d.MinReplicas != 2 || d.ReplicaTimeout != 50*time.Millisecond ||
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
