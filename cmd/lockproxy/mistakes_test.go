package main

import (
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
)

// The log says what keeps the upstream from serving, at the start and later, and when that is over.
func TestUpstreamThatServesNotAlways(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	server.Ask("REPLICAOF", "127.0.0.1", "1")
	p := start(t, "--listen", "127.0.0.1:0", "--upstream", server.URL(),
		"--upstream-dial-timeout", "2s")
	seen := 0 // of the log; the machine can make Redis silent too, before the test does
	says := func(text string) {
		t.Helper()
		if !testwait.Holds(func() bool { return strings.Contains(p.said()[seen:], text) }) {
			t.Fatalf("no %q behind the first %d bytes of its log:\n%s", text, seen, p.said())
		}
		seen += strings.Index(p.said()[seen:], text) + len(text)
	}
	says("it is a replica of")
	server.Ask("REPLICAOF", "NO", "ONE")
	says("the upstream serves now")
	server.Pause()
	says("the upstream does not answer")
	server.Resume()
	says("the upstream serves now")
}

// New clients lack a password that is set while the proxy runs, though /readyz asks by a connection
// from before.
func TestPasswordThatIsSetLaterIsMissing(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	server.Ask("SET", "k", "v")
	server.Ask("CONFIG", "SET", "maxmemory", "1")
	admin := fmt.Sprintf("127.0.0.1:%d", testredis.FreePort(t))
	p := start(t, "--listen", "127.0.0.1:0", "--upstream", server.URL(), "--admin", admin)
	p.waitFor("its memory is full")
	ready, err := http.Get("http://" + admin + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	ready.Body.Close()
	server.Ask("CONFIG", "SET", "maxmemory", "0", "requirepass", "later") // then it looks again
	p.waitFor("the upstream wants a login, and --upstream has none")
	if strings.Contains(p.said(), "EVAL answers") {
		t.Errorf("the log says\n%s", p.said())
	}
}

// It says so if no LOCK can reach enough replicas.
func TestMissingReplicasAreSaid(t *testing.T) {
	t.Parallel()
	p := start(t, "--listen", "127.0.0.1:0", "--upstream", testredis.Start(t).URL(),
		"--min-replicas", "1")
	p.waitFor("the upstream serves, but can keep no locks")
	p.waitFor("0 replicas are connected, and --min-replicas is 1")
}

// A Redis that answers, but takes no writes, serves; its memory can be full for every process, so
// that another one may take over.
func TestUpstreamThatTakesNoWrites(t *testing.T) {
	t.Parallel()
	replica := testredis.Start(t, "--replicaof", "127.0.0.1 1")
	start(t, "--listen", "127.0.0.1:0", "--upstream", replica.URL()).waitFor(
		"the upstream serves, but can keep no locks")
	full := testredis.Start(t)
	full.Ask("SET", "k", "v")
	full.Ask("CONFIG", "SET", "maxmemory", "1")
	dir := t.TempDir()
	args := []string{"--listen", "unix://" + dir + "/s", "--handover", dir + "/handover",
		"--upstream", full.URL()}
	running := start(t, args...)
	running.waitFor("the upstream serves, but can keep no locks")
	if strings.Contains(running.said(), "does not serve") {
		t.Errorf("the log says\n%s", running.said())
	}
	next := start(t, args...)
	running.waitFor("another process has taken over")
	<-running.ended
	if status := next.signal(syscall.SIGTERM); status != 0 {
		t.Errorf("status %d\n%s", status, next.said())
	}
}

// It says which rights are missing to a user who cannot lock.
func TestMissingRightsAreSaid(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	server.Ask("ACL", "SETUSER", "limited", "on", ">"+secret, "~*", "-@all", "+ping", "+get")
	p := start(t, "--listen", "127.0.0.1:0", "--upstream", "redis://limited:"+secret+"@"+
		server.Addr())
	p.waitFor("[WARN]  lockproxy: lock commands are answered with errors, unless clients log in " +
		`as another user; lockproxy check says more: missing="user limited lacks +eval +evalsha `)
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
		if _, said := runHere(t, "--listen", listen, "--upstream",
			upstream); !strings.Contains(said, errItself.Error()) {
			t.Errorf("--listen %s --upstream %s:\n%s", listen, upstream, said)
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
			"the running process keeps its clients") ||
			!strings.Contains(next.said(), "WRONGPASS") {
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
	for _, command := range []string{"LOCK a 600", "LOCK a 600 WAIT 0.1",
		"LOCKALL 600 2 {a}1 {a}2"} {
		nc, err := net.Dial("tcp", addr)
		if got := ask(t, nc, err, command); !strings.HasPrefix(got, "-UPSTREAM ") {
			t.Errorf("%s: %q", command, got)
		}
	}
	if p.signal(syscall.SIGTERM); strings.Contains(p.said(), "cannot release") {
		t.Errorf("the log says\n%s", p.said())
	}
}

// Nor does a LOCK to a server that has never answered, such as a TLS port that is named by
// redis://, though it may have run as far as the proxy can know: the log does not speak of locks.
func TestServerThatNeverAnswersHasNoLocks(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var connects atomic.Int64
	go func() { // ends with the listener
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			connects.Add(1)
			conn.Read(make([]byte, 1024))
			conn.Close()
		}
	}()
	defer ln.Close()
	addr := fmt.Sprintf("127.0.0.1:%d", testredis.FreePort(t))
	p := start(t, "--listen", addr, "--upstream", "redis://"+ln.Addr().String())
	for _, command := range []string{"LOCK a 600", "LOCK a 600 WAIT 0.1",
		"LOCKALL 600 2 {a}1 {a}2"} {
		nc, err := net.Dial("tcp", addr)
		if got := ask(t, nc, err, command); !strings.HasPrefix(got, "-UPSTREAM ") {
			t.Errorf("%s: %q", command, got)
		}
		answered := connects.Load()
		testwait.Until(t, "the proxy has tried to release it, again and again", func() bool {
			return connects.Load() > answered+3
		})
	}
	if p.signal(syscall.SIGTERM); strings.Contains(p.said(), "cannot release") ||
		strings.Contains(p.said(), "could not be released") {
		t.Errorf("the log says\n%s", p.said())
	}
}
