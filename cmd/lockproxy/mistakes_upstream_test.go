package main

import (
	"net"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testtls"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/upstream"
)

// outsideAddr is an address of this machine other than loopback, with the port of one on loopback;
// "" if there is none.
func outsideAddr(t *testing.T, port string) string {
	t.Helper()
	own, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, addr := range own {
		if ip, ok := addr.(*net.IPNet); ok && ip.IP.To4() != nil && !ip.IP.IsLoopback() {
			return net.JoinHostPort(ip.IP.String(), port)
		}
	}
	return ""
}

// mistake is one of an operator about the upstream: its URL, further flags, and what is said.
type mistake struct{ url, flags, want string }

// encryptedRedis is the address of a server with TLS.
func encryptedRedis(
	t *testing.T, ca *testtls.Authority, pair testtls.Pair, further ...string,
) string {
	t.Helper()
	port := strconv.Itoa(testredis.FreePort(t))
	testredis.Start(t, append(further, "--tls-port", port, "--tls-cert-file", pair.CertFile,
		"--tls-key-file", pair.KeyFile, "--tls-ca-cert-file", ca.File)...)
	return "127.0.0.1:" + port
}

// loadingRedis is a server that loads its data for longer than a test runs.
func loadingRedis(t *testing.T) *testredis.Server {
	t.Helper()
	server := testredis.Start(t, "--enable-debug-command", "yes", "--rdbcompression", "no",
		"--key-load-delay", "20000", "--loading-process-events-interval-bytes", "1024")
	server.Ask("DEBUG", "POPULATE", "20000", "key", "1024")
	nc, err := net.Dial("tcp", server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	nc.Write([]byte("DEBUG RELOAD\r\n")) // 20 ms for each key
	testwait.Until(t, "the server loads its data", func() bool {
		return strings.HasPrefix(server.Ask("PING"), "-LOADING")
	})
	return server
}

// varies is what differs from run to run: ports of clients, sizes, resolvers, the time, and how a
// connection ends that is of no use.
var varies = regexp.MustCompile(`127\.0\.0\.1:\d+->|\d+\.\d+[KM] | on \S+:53|` +
	`current time .* is after [^)]*|EOF|tls: first record does not look like a TLS handshake|` +
	`(?:read tcp \S+ )?(?:read: connection reset by peer|` +
	`i/o timeout)|(?:write tcp \S+ )?write: connection reset by peer|remote error: tls: [a-z ]+|` +
	`context deadline exceeded`)

func unchanging(text string) string { return varies.ReplaceAllString(text, "…") }

// What an operator has got wrong about the upstream is said by check, and in the log as soon as the
// proxy serves, with what to do about it.
func TestMistakesAboutTheUpstream(t *testing.T) {
	t.Parallel()
	plain := testredis.Start(t)
	locked := testredis.Start(t, "--requirepass", "right")
	replica := testredis.Start(t, "--replicaof", "127.0.0.1 1")
	node := testredis.Start(t, "--cluster-enabled", "yes")
	sentinel := testredis.StartSentinel(t, plain.Addr())
	loading := loadingRedis(t)
	full := testredis.Start(t)
	full.Ask("SET", "k", "v")
	full.Ask("CONFIG", "SET", "maxmemory", "1")
	ca := testtls.NewAuthority(t)
	pair := ca.Issue(t, "redis.test")
	stranger := testtls.NewAuthority(t).Issue(t, "client")
	encrypted := encryptedRedis(t, ca, pair, "--tls-auth-clients", "no")
	expired := encryptedRedis(t, ca, ca.IssueExpired(t, "redis.test"), "--tls-auth-clients", "no")
	strict := encryptedRedis(t, ca, pair)
	old := encryptedRedis(t, ca, pair, "--tls-protocols", "TLSv1.2")
	trusting := "--upstream-tls-ca " + ca.File
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })

	// ADDR stands for the address in the URL.
	const (
		unreached  = "cannot reach ADDR: nothing was sent, try again "
		unverified = unreached + "(TLS: tls: failed to verify certificate: x509: certificate "
		noMaster   = "nothing was sent, try again (no Sentinel has told who the master is: " +
			"Sentinel "
		sentinels = "; name Sentinels, and one of the groups that SENTINEL MASTERS lists " +
			"there)"
		plainText = "it speaks TLS: name it by rediss://, not redis:// (" + unreached + "(…))"
	)
	mistakes := map[string]mistake{
		"no server": {"redis://127.0.0.1:1", "",
			unreached + "(dial tcp ADDR: connect: connection refused)"},
		"no host": {"redis://nowhere.invalid:6379", "",
			unreached + "(dial tcp: lookup nowhere.invalid…: no such host)"},
		"no socket": {"unix:///nowhere/redis.sock", "",
			unreached + "(dial unix ADDR: connect: no such file or directory)"},
		"silent": {"redis://" + silent.Addr().String(), "", unreached + "(…)"},
		"wrong password": {"redis://:" + secret + "@" + locked.Addr(), "", "ADDR refused the " +
			"proxy's AUTH: WRONGPASS invalid username-password pair or user is disabled."},
		"password for none": {"redis://:" + secret + "@" + plain.Addr(), "",
			"ADDR refused the proxy's AUTH: ERR AUTH <password> called without any password " +
				"configured for the default user. Are you sure your configuration is correct?"},
		"no such database": {plain.URL() + "/99", "",
			"ADDR refused the proxy's SELECT: ERR DB index is out of range"},
		"TLS to a plain port": {"rediss://" + plain.Addr(), "", "it does not speak TLS: name it " +
			"by redis://, not rediss:// (" + unreached + "(TLS: …))"},
		"plain to a TLS port":                  {"redis://" + encrypted, "", plainText},
		"plain to one of TLS 1.2":              {"redis://" + old, "", plainText},
		"plain to one that wants certificates": {"redis://" + strict, "", plainText},
		"unknown authority": {"rediss://" + encrypted, "", "the authority that has signed its " +
			"certificate is unknown on this machine: name the file of that one by " +
			"--upstream-tls-ca (" + unverified + "signed by unknown authority))"},
		"another name": {"rediss://" + strings.Replace(encrypted, "127.0.0.1", "localhost", 1),
			trusting, "its certificate is for another name: give that by " +
				"--upstream-tls-server-name (" + unverified +
				"is valid for redis.test, not localhost))"},
		"expired": {"rediss://" + expired, trusting, "its certificate is not valid today: renew " +
			"it, or set this machine's clock (" + unverified +
			"has expired or is not yet valid: …))"},
		"no certificate shown": {"rediss://" + strict, trusting, "it may let in only clients " +
			"with a certificate: name one by --upstream-tls-cert and --upstream-tls-key (" +
			unreached +
			"(TLS: the connection ended right after the handshake: the upstream may want a " +
			"client certificate, or refuse this one: …))"},
		"a certificate of another authority": {"rediss://" + strict, trusting +
			" --upstream-tls-cert " + stranger.CertFile + " --upstream-tls-key " + stranger.KeyFile,
			"it may not accept the certificate in --upstream-tls-cert: its authority must be one " +
				"that the upstream knows, and it must be valid today (" + unreached + "(TLS: the " +
				"connection ended right after the handshake: the upstream may want a client " +
				"certificate, or refuse this one: …))"},
		"a replica": {replica.URL(), "", "ADDR: it is a replica of 127.0.0.1:1, which can't be " +
			"written to: name the master in --upstream, or its Sentinels"},
		"a Sentinel": {sentinel.URL(), "", "ADDR: it is a Sentinel: name the group of its master " +
			"by redis+sentinel://ADDR/GROUP"},
		"no cluster": {"redis+cluster://" + plain.Addr(), "",
			"ADDR: it is not a cluster: name it by redis://"},
		"a node": {node.URL(), "", "ADDR: it is a node of a cluster, and answers MOVED for most " +
			"keys: name the cluster by redis+cluster://ADDR"},
		"loading": {loading.URL(), "", "ADDR: it is loading its data: requests are answered " +
			"LOADING until that is done"},
		"full": {full.URL(), "", "ADDR: its memory is full (…of maxmemory 1B, noeviction): LOCK " +
			"is answered OOM; raise maxmemory, or delete keys"},
		"no Sentinel": {"redis+sentinel://" + plain.Addr() + "/mymaster", "",
			"cannot reach mymaster: " + noMaster + "ADDR: SENTINEL MASTER mymaster: ERR unknown " +
				"command 'SENTINEL', with args beginning with: 'MASTER' 'mymaster' " + sentinels},
		"no such group": {"redis+sentinel://" + sentinel.Addr() + "/other", "",
			"cannot reach other: " + noMaster + "ADDR: SENTINEL MASTER other: ERR No such " +
				"master with that name" + sentinels},
	}
	open := testredis.Start(t, "--bind", "*")
	_, openPort, _ := net.SplitHostPort(open.Addr())
	if outside := outsideAddr(t, openPort); outside != "" {
		denied := "DENIED Redis is running in protected mode because protected mode is " +
			"enabled and no password is set for the default user."
		if testredis.IsValkey() {
			denied = strings.Replace(denied, "Redis is running", "Running", 1)
		}
		mistakes["protected mode"] = mistake{"redis://" + outside, "", unreached + "(" + denied}
	}
	// This can be meant: clients may have logins of their own.
	without := start(t, "--upstream", locked.URL(), "--listen", "127.0.0.1:0")
	testwait.Until(t, "the log says that a password is missing", func() bool {
		return strings.Contains(without.said(),
			"the upstream wants a login, and --upstream has none")
	})
	for name, c := range mistakes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			named, err := upstream.Parse(c.url)
			if err != nil {
				t.Fatal(err)
			}
			_, addr, _ := strings.Cut(c.url, "@")
			if addr == "" {
				_, addr, _ = strings.Cut(c.url, "://")
			}
			if named.Network != "unix" {
				addr, _, _ = strings.Cut(addr, "/")
			}
			want := strings.ReplaceAll(c.want, "ADDR", addr)
			flags := append(strings.Fields(c.flags), "--upstream", c.url)
			within, slow := "1m", map[string]string{"silent": "1s", "TLS to a plain port": "1s",
				"no Sentinel": "10s", "no such group": "10s"} // who must be waited for
			if slow[name] != "" {
				within = slow[name]
			}
			said := check(t, 1, append(flags, "--upstream-dial-timeout", within)...)
			_, found, _ := strings.Cut(unchanging(said), "FAIL  upstream     ")
			if found != want+"\n" && !(name == "protected mode" && strings.HasPrefix(found, want)) {
				t.Errorf("check says\n%s, not\n%s", said, want)
			}
			p := start(t, append(flags, "--listen", "127.0.0.1:0")...)
			testwait.Until(t, "the log says so", func() bool {
				return strings.Contains(unchanging(p.said()), `error="`+want)
			})
		})
	}
}
