package main

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"lockproxy/internal/testredis"
	"lockproxy/internal/testtls"
	"lockproxy/internal/testwait"
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

// What an operator has got wrong about the upstream is said by check, and in the log as soon as the
// proxy serves, with what to do about it.
func TestUpstreamMistakes(t *testing.T) {
	t.Parallel()
	plain := testredis.Start(t)
	locked := testredis.Start(t, "--requirepass", "right")
	replica := testredis.Start(t, "--replicaof", "127.0.0.1 1")
	node := testredis.Start(t, "--cluster-enabled", "yes")
	sentinel := testredis.StartSentinel(t, plain.Addr())
	full := testredis.Start(t)
	full.Ask("SET", "k", "v")
	full.Ask("CONFIG", "SET", "maxmemory", "1")
	authority := testtls.NewAuthority(t)
	pair := authority.Issue(t, "127.0.0.1")
	tlsPort := strconv.Itoa(testredis.FreePort(t))
	testredis.Start(t, "--tls-port", tlsPort, "--tls-cert-file", pair.CertFile,
		"--tls-key-file", pair.KeyFile, "--tls-ca-cert-file", authority.File, "--tls-auth-clients", "no")
	encrypted := "127.0.0.1:" + tlsPort
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })

	mistakes := map[string]struct{ url, want string }{
		"no server": {"redis://127.0.0.1:1", "cannot reach 127.0.0.1:1: nothing was sent"},
		"no host":   {"redis://nowhere.invalid:6379", "lookup nowhere.invalid"},
		"wrong password": {"redis://:" + secret + "@" + locked.Addr(),
			"refused the proxy's AUTH: WRONGPASS"},
		"password for none": {"redis://:" + secret + "@" + plain.Addr(),
			"refused the proxy's AUTH: ERR AUTH <password> called without any password"},
		"no such database": {plain.URL() + "/99",
			"refused the proxy's SELECT: ERR DB index is out of range"},
		"TLS to a plain port": {"rediss://" + plain.Addr(),
			"it does not speak TLS: name it by redis://, not rediss://"},
		"plain to a TLS port": {"redis://" + encrypted,
			"it speaks TLS: name it by rediss://, not redis://"},
		"unknown authority": {"rediss://" + encrypted,
			"name the file of that one by --upstream-tls-ca"},
		"a replica": {replica.URL(), "it is a replica of 127.0.0.1:1, which can't be written to"},
		"a Sentinel": {sentinel.URL(),
			"it is a Sentinel: name the group of its master by redis+sentinel://" +
				sentinel.Addr() + "/GROUP"},
		"no cluster": {"redis+cluster://" + plain.Addr(),
			"it is not a cluster: name it by redis://"},
		"a node": {node.URL(), "it is a node of a cluster, and answers MOVED for most keys: " +
			"name the cluster by redis+cluster://"},
		"full": {full.URL(), "its memory is full ("},
		"no Sentinel": {"redis+sentinel://" + plain.Addr() + "/mymaster",
			"SENTINEL MASTER mymaster: ERR unknown command"},
		"no such group": {"redis+sentinel://" + sentinel.Addr() + "/other",
			"SENTINEL MASTER other: ERR No such master with that name"},
		"silent": {"redis://" + silent.Addr().String(), "cannot reach " + silent.Addr().String()},
	}
	open := testredis.Start(t, "--bind", "*")
	_, openPort, _ := net.SplitHostPort(open.Addr())
	if outside := outsideAddr(t, openPort); outside != "" {
		mistakes["protected mode"] = struct{ url, want string }{"redis://" + outside,
			"DENIED Redis is running in protected mode"}
	}
	for name, c := range mistakes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			said := check(t, 1, "--upstream", c.url, "--upstream-dial-timeout", "1s")
			if wantLines(t, said, "FAIL upstream"); !strings.Contains(said, c.want) {
				t.Errorf("check says\n%s, not %q", said, c.want)
			}
			p := start(t, "--listen", "127.0.0.1:0", "--upstream", c.url)
			testwait.Until(t, "the log says so", func() bool {
				return strings.Contains(p.said(), c.want)
			})
			if status := p.signal(syscall.SIGTERM); status != 0 {
				t.Errorf("status %d\n%s", status, p.said())
			}
		})
	}
}

// When the upstream serves at last, the log says so.
func TestUpstreamServesAtLast(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	server.Ask("REPLICAOF", "127.0.0.1", "1")
	p := start(t, "--listen", "127.0.0.1:0", "--upstream", server.URL())
	said := func(text string) func() bool {
		return func() bool { return strings.Contains(p.said(), text) }
	}
	testwait.Until(t, "it says what is wrong", said("it is a replica of"))
	server.Ask("REPLICAOF", "NO", "ONE")
	testwait.Until(t, "it says that nothing is wrong any more", said("the upstream serves now"))
}

// A proxy is never its own upstream: each connection would open another.
func TestUpstreamIsTheProxyItself(t *testing.T) {
	t.Parallel()
	port := strconv.Itoa(testredis.FreePort(t))
	path := t.TempDir() + "/s"
	for listen, upstream := range map[string]string{
		"127.0.0.1:" + port: "redis://127.0.0.1:" + port,
		"localhost:" + port: "redis://127.0.0.1:" + port,
		":" + port:          "redis://localhost:" + port,
		"0.0.0.0:" + port:   "redis://127.0.0.2:" + port,
		"unix://" + path:    "unix://" + path,
	} {
		p := spawn(t, nil, "--listen", listen, "--upstream", upstream)
		<-p.ended
		if !strings.Contains(p.said(), errItself.Error()) {
			t.Errorf("--listen %s --upstream %s:\n%s", listen, upstream, p.said())
		}
		if said := check(t, 1, "--listen", listen, "--upstream",
			upstream); !strings.Contains(said, errItself.Error()) {
			t.Errorf("check --listen %s --upstream %s:\n%s", listen, upstream, said)
		}
	}
	other := testredis.Start(t)
	start(t, "--listen", "127.0.0.1:0", "--upstream", other.URL()) // serves
}

// A process whose upstream does not serve takes over from none that does, unless it is told to.
func TestHandoverToAProcessWithoutUpstream(t *testing.T) {
	t.Parallel()
	redis := testredis.Start(t, "--requirepass", "right")
	good := strings.Replace(redis.URL(), "://", "://:right@", 1)
	for _, kind := range []string{"127.0.0.1:", "unix://"} {
		dir := t.TempDir()
		listen := kind + dir + "/x.sock"
		if kind != "unix://" {
			listen = fmt.Sprint(kind, testredis.FreePort(t))
		}
		args := []string{"--listen", listen, "--handover", dir + "/handover.sock", "--upstream"}
		running := start(t, append(args, good)...)
		next := spawn(t, nil, append(args, strings.Replace(good, "right", secret, 1))...)
		<-next.ended
		if next.cmd.ProcessState.ExitCode() != exitFailure || !strings.Contains(next.said(),
			"the running process keeps its clients") || !strings.Contains(next.said(), "WRONGPASS") {
			t.Errorf("the process with a wrong password:\n%s", next.said())
		}
		running.waitFor("this one continues")
		network, addr := "tcp", listen
		if path, isUnix := strings.CutPrefix(listen, "unix://"); isUnix {
			network, addr = "unix", path
		}
		nc, err := net.Dial(network, addr)
		if got := ask(t, nc, err, "PING"); got != "+PONG\r\n" {
			t.Errorf("PING: %q", got)
		}
		told := start(t, append(args, strings.Replace(good, "right", secret, 1),
			"--handover-unchecked")...)
		running.waitFor("another process has taken over")
		<-running.ended
		if status := told.signal(syscall.SIGTERM); status != 0 {
			t.Errorf("status %d\n%s", status, told.said())
		}
	}
}

// A LOCK that was never sent, since the login is refused, leaves nothing to release.
func TestRefusedLoginLeavesNoLock(t *testing.T) {
	t.Parallel()
	redis := testredis.Start(t, "--requirepass", "right")
	addr := fmt.Sprintf("127.0.0.1:%d", testredis.FreePort(t))
	p := start(t, "--listen", addr, "--upstream",
		strings.Replace(redis.URL(), "://", "://:"+secret+"@", 1))
	for _, command := range []string{"LOCK a 60", "LOCK a 60 WAIT 0.1", "LOCKALL 60 2 {a}1 {a}2"} {
		nc, err := net.Dial("tcp", addr)
		if got := ask(t, nc, err, command); !strings.HasPrefix(got, "-UPSTREAM ") {
			t.Errorf("%s: %q", command, got)
		}
	}
	if p.signal(syscall.SIGTERM); strings.Contains(p.said(), "cannot release") {
		t.Errorf("the log says\n%s", p.said())
	}
}
