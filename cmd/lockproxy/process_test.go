package main

import (
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testtls"
	"lockproxy/internal/test/testwait"
)

// asProgram makes the test binary behave as lockproxy, so that a test has a process to
// signal.
const asProgram = "LOCKPROXY_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		os.Unsetenv(asProgram)
		main()
	}
	for _, sig := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT} {
		if signal.Ignored(sig) {
			// as under nohup or behind a script's &; the programs under test must not inherit it
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
	os.Exit(m.Run())
}

// process is a running lockproxy.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	log   testredis.LogBuffer
	ended chan struct{}
}

func (p *process) said() string { return p.log.String() }

// start runs lockproxy until it says that it serves, or ends.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	p := spawn(t, nil, args...)
	if p.waitFor("serving"); p.hasEnded() {
		t.Fatalf("it does not serve:\n%s", p.said())
	}
	return p
}

// spawn runs lockproxy with additional environment variables.
func spawn(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	return spawnBy(t, env, append([]string{os.Args[0]}, args...)...)
}

// spawnBy does so by a command line that ends with lockproxy's own.
func spawnBy(t *testing.T, env []string, line ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(line[0], line[1:]...), ended: make(chan struct{})}
	p.cmd.Env = append(append(os.Environ(), asProgram+"=1"), env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { // ends with the process, which Cleanup kills
		defer close(p.ended)
		p.cmd.Wait()
	}()
	t.Cleanup(func() {
		p.cmd.Process.Kill()
		<-p.ended
		if strings.Contains(p.said(), secret) {
			t.Errorf("the password is in the log:\n%s", p.said())
		}
	})
	return p
}

// runHere runs a command line that ends by itself in this process, which takes a fraction of the
// time of another one.
func runHere(t *testing.T, args ...string) (status int, said string) {
	t.Helper()
	var both testredis.LogBuffer // a command of lockproxy run is given one pipe for it
	status = run(args, &both, &both)
	if said = both.String(); strings.Contains(said, secret) {
		t.Errorf("the password is told:\n%s", said)
	}
	return status, said
}

func (p *process) waitFor(line string) {
	p.t.Helper()
	if !testwait.Holds(func() bool { return p.hasEnded() || strings.Contains(p.said(), line) }) {
		p.t.Fatalf("no %q in its log:\n%s", line, p.said())
	}
}

func (p *process) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// signal sends sig and waits for the status with which the process ends.
func (p *process) signal(sig syscall.Signal) (status int) {
	p.t.Helper()
	p.cmd.Process.Signal(sig)
	return p.status()
}

// status waits for the process to end.
func (p *process) status() int {
	p.t.Helper()
	if !testwait.Holds(p.hasEnded) {
		p.t.Fatalf("%v doesn't end:\n%s", p.cmd.Args[1:], p.said())
	}
	return p.cmd.ProcessState.ExitCode()
}

func ask(t *testing.T, nc net.Conn, err error, request string) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	nc.SetDeadline(testwait.Deadline())
	fmt.Fprintf(nc, "%s\r\n", request)
	answer := make([]byte, 256)
	n, err := nc.Read(answer)
	if err != nil {
		t.Fatal(err)
	}
	return string(answer[:n])
}

// shownName is the name in the certificate that a proxy shows.
func shownName(t *testing.T, addr string, ca *testtls.Authority) string {
	t.Helper()
	conn, err := tls.Dial("tcp", addr, &tls.Config{RootCAs: ca.Pool, ServerName: "127.0.0.1"})
	if got := ask(t, conn, err, "PING"); got != "+PONG\r\n" {
		t.Errorf("PING: %q", got)
	}
	return conn.ConnectionState().PeerCertificates[0].Subject.CommonName
}

// SIGHUP reads the TLS files again, and says in one line if they are bad.
func TestHangupReadsCertificatesAgain(t *testing.T) {
	redis := testredis.Start(t)
	ca := testtls.NewAuthority(t)
	first, second := ca.Issue(t, "first"), ca.Issue(t, "second")
	addr := fmt.Sprintf("127.0.0.1:%d", testredis.FreePort(t))
	p := start(t, "--listen", addr, "--upstream", redis.URL(), "--tls-cert", first.CertFile,
		"--tls-key", first.KeyFile)
	p.waitFor("listen=tls://" + addr)
	shows := func(want string) {
		t.Helper()
		if name := shownName(t, addr, ca); name != want {
			t.Errorf("certificate of %q, want %q", name, want)
		}
	}
	shows("first")
	os.WriteFile(first.CertFile, []byte("no PEM"), 0o600)
	p.cmd.Process.Signal(syscall.SIGHUP)
	p.waitFor("stay in use until the next SIGHUP")
	shows("first")
	copyFile(t, first.CertFile, second.CertFile)
	copyFile(t, first.KeyFile, second.KeyFile)
	p.cmd.Process.Signal(syscall.SIGHUP)
	p.waitFor("the TLS files were read again")
	shows("second")
	if n := strings.Count(p.said(), "[ERROR]"); n != 1 {
		t.Errorf("%d error lines:\n%s", n, p.said())
	}
	if status := p.signal(syscall.SIGTERM); status != 0 {
		t.Errorf("status %d after SIGTERM:\n%s", status, p.said())
	}
}

func TestSocketFileOfProcess(t *testing.T) {
	redis := testredis.Start(t, "--requirepass", secret)
	path := filepath.Join(t.TempDir(), "lockproxy.sock")
	args := []string{"--listen", "unix://" + path, "--upstream", "redis://:" + secret + "@" +
		redis.Addr()}
	killed := start(t, args...)
	nc, err := net.Dial("unix", path)
	if got := ask(t, nc, err, "PING"); got != "+PONG\r\n" {
		t.Errorf("PING: %q", got)
	}
	second := spawn(t, nil, args...)
	if status := second.status(); status != exitFailure ||
		!strings.Contains(second.said(), "a running process already serves there") {
		t.Errorf("a second process: status %d\n%s", status, second.said())
	}
	killed.signal(syscall.SIGKILL)
	if _, err := os.Lstat(path); err != nil {
		t.Fatal("SIGKILL leaves no socket behind: nothing to test")
	}
	heir := start(t, args...)
	nc, err = net.Dial("unix", path)
	if got := ask(t, nc, err, "PING"); got != "+PONG\r\n" {
		t.Errorf("PING: %q", got)
	}
	heir.cmd.Process.Signal(syscall.SIGHUP)
	heir.waitFor("SIGHUP: the settings were read again; nothing has changed")
	if status := heir.signal(syscall.SIGINT); status != 0 {
		t.Errorf("status %d after SIGINT:\n%s", status, heir.said())
	}
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("the socket after the end: %v", err)
	}
}

// Whatever goes wrong with the upstream, neither the log nor clients see its password.
func TestPasswordIsNotTold(t *testing.T) {
	t.Parallel()
	redis := testredis.Start(t, "--requirepass", "other")
	for _, args := range [][]string{
		{"--upstream", "redis://user:" + secret + "@" + redis.Addr()},
		{"--upstream", "redis://user:" + secret + "@127.0.0.1:1/3", "--log-format", "json"},
		{"--upstream", "rediss://user:" + secret + "@" + redis.Addr(),
			"--upstream-dial-timeout", "200ms",
			"--log-level", "trace"},
		{"--upstream", "unix://user:" + secret + "@/nowhere/redis.sock", "--log-level", "debug"},
	} {
		addr := fmt.Sprintf("127.0.0.1:%d", testredis.FreePort(t))
		p := start(t, append([]string{"--listen", addr}, args...)...)
		nc, err := net.Dial("tcp", addr)
		if got := ask(t, nc, err, "LOCK a 600"); !strings.HasPrefix(got, "-UPSTREAM ") ||
			strings.Contains(got, secret) {
			t.Errorf("%v: %q", args, got)
		}
		if status := p.signal(syscall.SIGTERM); status != 0 {
			t.Errorf("%v: status %d", args, status)
		}
		for _, line := range strings.Split(strings.TrimSpace(p.said()), "\n") {
			if !strings.Contains(line, "lockproxy") {
				t.Errorf("not of the log's form: %s", line)
			}
		}
	}
}
