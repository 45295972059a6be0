package main

import (
	"bytes"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
)

const secret = "s3cr3t-pass"

// An invalid flag ends with status 2 and one line that says what is wrong and what to do; no line
// ever shows a password.
func TestCommandLine(t *testing.T) {
	for _, c := range []struct {
		args   string
		env    string // NAME=value
		status int
		want   string // in what is printed
	}{
		{args: "--version", want: "lockproxy dev\n"},
		{args: "--help", want: "--proxy-protocol-from=CIDR,..."},
		{args: "--nope", status: 2, want: "lockproxy: unknown flag --nope"},
		{args: "-upstream redis://u:" + secret + "@h", status: 2,
			want: "unknown flag -upstream, did you mean --upstream?"},
		{args: "top -rows=5", status: 2, want: "unknown flag -rows, did you mean --rows?"},
		{args: "redis://user:" + secret + "@h", status: 2,
			want: "unexpected argument redis://(hidden)@h"},
		{args: "--upstrem=redis://user:" + secret + "@h", status: 2,
			want: `did you mean "--upstream"?`},
		{args: "--max-clients=redis://user:" + secret + "@h", status: 2,
			want: "--max-clients: want a number"},
		{args: "--upstream redis://user:" + secret + "#x@h", status: 2,
			want: "--upstream: not a usable redis URL"},
		{args: "--upstream http://user:" + secret + "@h", status: 2,
			want: `scheme "http" is not known`},
		{args: "--upstream redis://user:" + secret + "@h:x", status: 2, want: "--upstream: "},
		{args: "--upstream redis://user:" + secret + "@h?read_timeout=3", status: 2,
			want: `option "read_timeout"`},
		{env: "LOCKPROXY_UPSTREAM=ftp://user:" + secret + "@h", status: 2,
			want: `scheme "ftp" is not known`},
		{env: "LOCKPROXY_MAX_CLIENTS=many", status: 2, want: "max-clients"},
		{args: "--max-clients", status: 2,
			want: "--max-clients: the value is missing: write --max-clients=N"},
		{args: "--max-clients -1", status: 2, want: "want a number from 1 to 2147483647, " +
			`not "-1"`},
		{args: "--max-clients", status: 2, want: "write --max-clients=N"},
		{args: "--tls-cert --tls-key x", status: 2, want: "--tls-cert: the value is missing"},
		{args: "--listen 6380", status: 2, want: "--listen 6380: want host:port"},
		{args: "--admin 6390", status: 2, want: "--admin 6390: want host:port"},
		{args: "--cluster-announce h", status: 2, want: "--cluster-announce h: want host:port"},
		{args: "--max-clients 0", status: 2, want: `1 to 2147483647, not "0"`},
		{args: "--max-timeout 0s", status: 2,
			want: `want a time from 1ms to 87600h, as in 90s or 1h30m, not "0s"`},
		{args: "--max-bulk many", status: 2,
			want: `want a size from 1kb to 1024gb, as in 64kb, 1mb or 2gb, not "many"`},
		{args: "--client-buffer 1kb", status: 2,
			want: "--client-buffer: want a size from 64kb to 1gb"},
		{args: "--max-inline 2mb", status: 2,
			want: "--max-inline is 2097152: want at most --client-buffer, which is 1048576"},
		{args: "--max-args 2147483648", status: 2, want: "--max-args: want a number from 1 " +
			"to 2147483647"},
		{args: "--handshake-timeout 2h", status: 2,
			want: "--handshake-timeout: want a time from 1ms to 1h"},
		{args: "--listen unix://relative", status: 2, want: "absolute path"},
		{args: "--listen unix:///" + strings.Repeat("x", 107), status: 2,
			want: "can have at most 107 bytes; this one has 108"},
		{args: "--listen-mode 0999", status: 2,
			want: "--listen-mode: want octal permissions from 0000 to 0777, as in 0770, " +
				`not "0999"`},
		{args: "--listen unix:///x --proxy-protocol-from 10.0.0.0/8", status: 2,
			want: "a Unix socket has none"},
		{args: "--proxy-protocol-from somewhere", status: 2,
			want: `--proxy-protocol-from: not a network: "somewhere"`},
		{args: "--tls-cert x", status: 2, want: "--tls-cert and --tls-key belong together"},
		{args: "--tls-client-ca x", status: 2, want: "--tls-client-ca needs --tls-cert"},
		{args: "--upstream rediss://h --upstream-tls-key x", status: 2,
			want: "--upstream-tls-cert and --upstream-tls-key belong together"},
		{args: "--upstream redis://h --upstream-tls-ca x", status: 2,
			want: "--upstream-tls-ca is for TLS: write --upstream as rediss://"},
		{args: "--upstream-tls-server-name x", status: 2,
			want: "--upstream-tls-server-name is for TLS"},
		{args: "--log-level loud", status: 2, want: "--log-level must be one of"},

		{args: "--tls-cert /nowhere/c --tls-key /nowhere/k", status: 1,
			want: "--tls-cert /nowhere/c with --tls-key /nowhere/k: open /nowhere/c"},
		{args: "--upstream rediss://:" + secret + "@h --upstream-tls-ca /nowhere/ca", status: 1,
			want: "--upstream-tls-ca /nowhere/ca: open /nowhere/ca"},
		{args: "--listen 127.0.0.1:99999 --upstream redis://:" + secret + "@h", status: 2,
			want: "--listen 127.0.0.1:99999: want host:port with a port up to 65535"},
		{args: "--listen 192.0.2.1:6380 --upstream redis://:" + secret + "@h", status: 1,
			want: "cannot listen on 192.0.2.1:6380, choose another --listen"},
		{args: "--listen unix:///nowhere/x.sock", status: 1,
			want: "cannot listen on unix:///nowhere/x.sock"},
	} {
		t.Run(c.args+c.env, func(t *testing.T) {
			if name, value, found := strings.Cut(c.env, "="); found {
				t.Setenv(name, value)
			}
			var out, errs bytes.Buffer
			status := run(strings.Fields(c.args), &out, &errs)
			printed := out.String() + errs.String()
			if status != c.status || !strings.Contains(printed, c.want) {
				t.Errorf("status %d, want %d, and in it %q:\n%s", status, c.status, c.want, printed)
			}
			if strings.Contains(printed, secret) {
				t.Errorf("the password is shown:\n%s", printed)
			}
			if c.status == exitUsage && strings.Count(printed, "\n") != 1 {
				t.Errorf("more than a line:\n%s", printed)
			}
		})
	}
}

// parseOptions reads the flags of serving.
func parseOptions(args []string, stdout io.Writer) (opts *options, done bool, err error) {
	cmd, err := parse(args, stdout)
	if cmd == nil || err != nil {
		return nil, cmd == nil && err == nil, err
	}
	return &cmd.(*serveCommand).options, false, nil
}

func TestFlagsBecomeConfiguration(t *testing.T) {
	t.Setenv("LOCKPROXY_CLIENT_BUFFER", "2mb")
	t.Setenv("LOCKPROXY_MAX_BULK", "1gb")
	_, done, err := parseOptions(strings.Fields("--max-bulk=64MB --max-args 100 --max-inline 1k "+
		"--max-clients 7 --proxy-protocol-from 10.0.0.0/8,::1 "+
		"--handshake-timeout 3s --listen unix:///run/x.sock --upstream unix:///run/redis.sock "+
		"--listen-mode 770"),
		&bytes.Buffer{})
	if err == nil || done { // a Unix socket and networks
		t.Fatal("accepted")
	}
	opts, _, err := parseOptions(strings.Fields("--max-bulk=64MB --max-args 100 --max-inline 1k "+
		"--max-clients 7 --proxy-protocol-from 10.0.0.0/8,::1 "+
		"--handshake-timeout 3s --upstream unix:///run/redis.sock"),
		&bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	cfg := opts.serverConfig(opts.upstream, hclog.NewNullLogger())
	if cfg.ClientBuffer != 2<<20 || cfg.Limits.Bulk != 64<<20 || cfg.Limits.Args != 100 ||
		cfg.Limits.Inline != 1000 || cfg.MaxClients != 7 ||
		len(cfg.ProxyProtocolFrom) != 2 || cfg.HandshakeTimeout.Seconds() != 3 ||
		opts.upstream.Network != "unix" {
		t.Errorf("%+v", cfg)
	}
	opts, _, err = parseOptions(strings.Fields("--listen unix:///run/x.sock --listen-mode 770"),
		&bytes.Buffer{})
	if err != nil || opts.ListenMode != 0o770 {
		t.Errorf("%+v, %v", opts, err)
	}
}

func TestSizes(t *testing.T) {
	for text, want := range map[string]size{
		"0": 0, "1": 1, "1b": 1, "1k": 1000, "1kb": 1024, "1KB": 1024, "64kb": 65536, "1m": 1e6,
		"512mb": 512 << 20, "2g": 2e9, "2GB": 2 << 30,
		"": -1, "kb": -1, "-1": -1, "1tb": -1, "1 kb": -1, "1.5mb": -1, "1kk": -1,
		"9223372036854775807": 1<<63 - 1, "9223372036854775808": -1, "99999999999gb": -1,
	} {
		got, err := parseSize(text)
		if err != nil {
			got = -1
		}
		if got != want {
			t.Errorf("%q is %d, %v; want %d", text, got, err, want)
		}
	}
}

// Credentials in the upstream's URL serve every client that can connect: the log says so.
func TestOpenProxyIsMentioned(t *testing.T) {
	public, loopback := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)}, &net.TCPAddr{IP: net.IPv4(127, 0,
		0, 1)}
	for _, c := range []struct {
		args string
		addr net.Addr
		warn bool
	}{
		{"--upstream redis://:" + secret + "@h", public, true},
		{"--upstream redis://:" + secret + "@h", &net.TCPAddr{IP: net.IPv6zero}, true},
		{"--upstream redis://:" + secret + "@h", loopback, false},
		{"--upstream redis://:" + secret + "@h", &net.UnixAddr{Name: "/x"}, false},
		{"--upstream redis://h", public, false},
		{"--upstream redis://:" + secret + "@h --tls-cert c --tls-key k", public, true},
		{"--upstream redis://:" + secret + "@h --tls-cert c --tls-key k --tls-client-ca ca", public,
			false},
		{"", public, false},
	} {
		opts, _, err := parseOptions(strings.Fields(c.args), &bytes.Buffer{})
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		warnOpen(opts, c.addr, newLogger(opts, &out))
		if strings.Contains(out.String(), "[WARN]") != c.warn ||
			strings.Contains(out.String(), secret) {
			t.Errorf("%s on %v: %q", c.args, c.addr, out.String())
		}
	}
}
