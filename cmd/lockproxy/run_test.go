package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testtls"
	"lockproxy/internal/test/testwait"
)

func TestRunPassesStatusesOn(t *testing.T) {
	t.Parallel()
	s := serveRuns(t)
	s.do("SET", "text", "not a lock")
	plain := testredis.Start(t, "--requirepass", secret)
	for _, c := range []struct {
		args   string
		status int
		say    string
	}{
		{"-- true", 0, ""},
		{"true", 0, ""},
		{"-- sh -c exit+7", 7, ""},
		{"-- sh -c kill+-9+$$", 137, ""},
		{"-- sh -c kill+-TERM+$$", 143, ""},
		{"-- sh -c echo+$LOCKPROXY_KEY", 0, "job\n"},
		{"--wait 3 sh -c exit+4", 4, ""},
		{"-- printf %s.. --timeout 5", 0, "--timeout..5.."},
		{"-- no-such-command", 127, `cannot run no-such-command`},
		{"-- /no/such/command", 127, `cannot run /no/such/command`},
		{"-- /", 126, "cannot run /"},
		{"--key text -- true", 125, "WRONGTYPE"},
		{"--key a --key text -- true", 125, "WRONGTYPE"},
		{"--key a --key b --shared -- true", 125, "--shared, --limit and --max are for one --key"},
		{"--shared --limit 2 -- true", 125, "can't be used together"},
		{"--limit 0 -- true", 125, "--limit: want a number from 1 to 10000"},
		{"--timeout 90000 -- true", 125, "out of range"},
		{"--timeout 0 -- true", 125, `--timeout: want seconds from 0.001 to`},
		{"--nope -- true", 125, "unknown flag --nope"},
		{"", 125, "command"},
		{"--", 125, "command"},
		{"--url http://x -- true", 125, `scheme "http" is not known`},
		{"--tls-ca x -- true", 125, "are for TLS: write --url as rediss://"},
		{"--url rediss://" + s.addr + " --tls-ca /nowhere -- true", 125, "--tls-ca /nowhere"},
		{"--url redis://:" + secret + "@" + plain.Addr() + " -- true", 125,
			"this is a Redis, not lockproxy: connect to lockproxy's port, 6380 by default"},
		{"--url redis://:wrong@" + plain.Addr() + " -- true", 125, "AUTH: WRONGPASS"},
		{"--url redis://" + s.addr + "/77 -- true", 125, "SELECT: ERR DB index is out of range"},
	} {
		args := strings.Fields(c.args)
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "+", " ")
		}
		line := []string{"run", "--key", "job", "--url", s.url}
		if slices.Contains(args, "--key") {
			line = []string{"run", "--url", s.url}
		}
		if status, said := runHere(t, append(line, args...)...); status != c.status ||
			!strings.Contains(said, c.say) {
			t.Errorf("%s: status %d, want %d and %q:\n%s", c.args, status, c.status, c.say, said)
		}
		if got := s.field("owner"); got != "" {
			t.Errorf("%s: the lock is still held by %q", c.args, got)
		}
	}
	s.run("--", "sh", "-c", "kill -9 $$").wantStatus(137, "") // a process ends with the same
	s.redis.Kill()
	s.run("--", "true").wantStatus(69, "UPSTREAM")
}

// The command has the lock while it runs, and a token that is good for FENCE; right after its end
// the lock is free.
func TestRunHoldsTheLock(t *testing.T) {
	t.Parallel()
	s := serveRuns(t)
	file := filepath.Join(t.TempDir(), "env")
	first := s.run("--", "sh", "-c", "echo $LOCKPROXY_TOKEN >"+file+"; read x <"+fifo(t, file)+
		"; exit 3")
	token := strconv.Itoa(pidsIn(t, file, 1)[0])
	if s.field("token") != token || s.field("session") != "1" ||
		!strings.Contains(s.field("owner"), ":sh:") {
		t.Errorf("token %s, session %s, owner %q; want token %s", s.field("token"),
			s.field("session"), s.field("owner"), token)
	}
	s.do("FENCE", "job", token, "SET", "x", "written")
	s.run("--", "touch", file+".wrong").wantStatus(75, `another client holds the lock "job" ("`)
	s.run("-E", "0", "-q", "--", "touch", file+".wrong").wantStatus(0, "")
	s.run("--wait", "0.2", "--conflict-exit-code", "9", "--", "touch", file+".wrong").wantStatus(9,
		"another client holds")
	second := s.run("--wait", "0", "--", "sh", "-c", "echo $LOCKPROXY_TOKEN")
	testwait.Until(t, "it waits", func() bool { return s.field("waiters") == "1" })
	if second.said() != "" {
		t.Errorf("it didn't wait: %s", second.said())
	}
	goOn(t, file)
	first.wantStatus(3, "")
	second.wantStatus(0, "")
	if later, err := strconv.Atoi(strings.TrimSpace(second.said())); err != nil ||
		strconv.Itoa(later) <= token {
		t.Errorf("token %q after %s", second.said(), token)
	}
	if s.field("token") != "" {
		t.Error("not free after the end")
	}
	if _, err := os.Stat(file + ".wrong"); err == nil {
		t.Error("a command ran without the lock")
	}
}

// Several keys are held together; shared ones next to others, up to the limit.
func TestRunHoldsSeveralLocks(t *testing.T) {
	t.Parallel()
	s := serveRuns(t)
	file := filepath.Join(t.TempDir(), "env")
	first := s.run("--key", "a", "--key", "job", "--timeout", "30", "--", "sh", "-c",
		"echo $LOCKPROXY_TOKEN >"+file+"; read x <"+fifo(t, file))
	token := strconv.Itoa(pidsIn(t, file, 1)[0])
	a, job := s.do("GET", "a"), s.do("GET", "job") // when they expire
	testwait.Until(t, "both are renewed",
		func() bool { return s.do("GET", "a") != a && s.do("GET", "job") != job })
	s.do("FENCE", "a", token, "SET", "x", "written")
	s.do("FENCE", "job", token, "SET", "x", "written")
	s.run("--shared", "--", "true").wantStatus(75, `another client holds the lock "job"`)
	s.run("--key", "a", "--key", "b", "--", "true").wantStatus(75, `another client holds the lock "a b"`)
	goOn(t, file)
	first.wantStatus(0, "")
	if s.field("token") != "" {
		t.Error("not free after the end")
	}
	os.Remove(file)
	reader := s.run("--shared", "--", "sh", "-c", "echo $LOCKPROXY_TOKEN >"+file+"; read x <"+
		file+".fifo")
	pidsIn(t, file, 1)
	s.run("--shared", "--", "true").wantStatus(0, "")
	s.run("--limit", "2", "--", "true").wantStatus(0, "")
	s.run("--limit", "1", "--", "true").wantStatus(75, "another client holds")
	s.run("--", "true").wantStatus(75, "another client holds")
	goOn(t, file)
	reader.wantStatus(0, "")
}

func TestRunPassesSignalsOn(t *testing.T) {
	t.Parallel()
	// A shell that runs the tests in the background has them ignored, which commands would inherit.
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT)
	defer signal.Stop(caught)
	s := serveRuns(t)
	for _, c := range []struct {
		flags  string
		script string
		sig    syscall.Signal
		status int
	}{
		{"", `trap "exit 3" TERM; echo $$ >PID; while :; do sleep 0.02; done`, syscall.SIGTERM, 3},
		{"", `trap "exit 4" HUP; echo $$ >PID; while :; do sleep 0.02; done`, syscall.SIGHUP, 4},
		{"", `trap "exit 5" INT; echo $$ >PID; while :; do sleep 0.02; done`, syscall.SIGINT, 5},
		{"--foreground", `trap "exit 6" USR1; echo $$ >PID; while :; do sleep 0.02; done`,
			syscall.SIGUSR1, 6},
		{"", `echo $$ >PID; exec sleep 60`, syscall.SIGTERM, 143},
		{"", `echo $$ >PID; exec sleep 60`, syscall.SIGQUIT, 131},
	} {
		file := filepath.Join(t.TempDir(), "pid")
		args := append(strings.Fields(c.flags), "--", "sh", "-c",
			strings.ReplaceAll(c.script, "PID", file))
		run := s.run(args...)
		pidsIn(t, file, 1)
		if got := run.signal(c.sig); got != c.status {
			t.Errorf("%s, %v: status %d, want %d:\n%s", c.script, c.sig, got, c.status, run.said())
		}
		if s.field("token") != "" {
			t.Error("not free after the end")
		}
	}
}

// Under nohup neither lockproxy run nor its command ends by SIGHUP; other signals still end them.
func TestRunUnderNohup(t *testing.T) {
	t.Parallel()
	s := serveRuns(t)
	file := filepath.Join(t.TempDir(), "pid")
	run := spawnBy(t, []string{"LOCKPROXY_URL=" + s.url}, "sh", "-c", `trap "" HUP; exec "$0" "$@"`,
		os.Args[0], "run", "--key", "job", "--", "sh", "-c", "echo $$ >"+file+"; exec sleep 60")
	pid := pidsIn(t, file, 1)[0]
	for _, hungUp := range []int{run.cmd.Process.Pid, pid} {
		syscall.Kill(hungUp, syscall.SIGHUP)
	}
	// The kernel delivers SIGHUP, which would end it with another status, before SIGTERM.
	if got := run.signal(syscall.SIGTERM); got != 143 {
		t.Errorf("SIGTERM: status %d, want 143:\n%s", got, run.said())
	}
}

// A run that waits leaves the line at once when it is told to end.
func TestRunStopsWaiting(t *testing.T) {
	t.Parallel()
	s := serveRuns(t)
	token := s.do("LOCK", "job", "600")
	run := s.run("--wait", "0", "--", "true")
	testwait.Until(t, "it waits", func() bool { return s.field("waiters") == "1" })
	if got := run.signal(syscall.SIGTERM); got != 143 {
		t.Errorf("status %d:\n%s", got, run.said())
	}
	testwait.Until(t, "it has left the line", func() bool { return s.field("waiters") == "0" })
	s.do("UNLOCK", "job", token)
}

// A signal that comes together with the lock isn't lost: the command isn't started. The proxy is a
// scripted one, which answers as the signal arrives.
func TestRunIsSignalledAsItGetsTheLock(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	signals := make(chan os.Signal)
	var serving sync.WaitGroup
	serving.Go(func() { // ends when the listener is closed
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			in := bufio.NewReader(nc)
			for line, err := in.ReadString('\n'); err == nil; line, err = in.ReadString('\n') {
				switch line {
				case "HELLO\r\n":
					nc.Write([]byte("%1\r\n+proto\r\n:3\r\n"))
				case "LOCK\r\n":
					signals <- syscall.SIGTERM // has been taken when this goes on
					nc.Write([]byte(":5\r\n"))
				}
			}
			nc.Close()
		}
	})
	defer serving.Wait()
	defer ln.Close()
	cmd, err := parse([]string{"run", "--key", "job", "--url", "redis://" + ln.Addr().String(), "--",
		"true"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		conn, _, _, status := cmd.(*runCommand).acquire(signals, t.Logf)
		if conn != nil || status != 143 {
			if conn != nil {
				conn.close()
			}
			t.Fatalf("status %d, connection %v", status, conn != nil)
		}
	}
}

// If lockproxy run is killed the lock is gone, so the kernel ends the command.
func TestRunKilled(t *testing.T) {
	t.Parallel()
	s := serveRuns(t)
	file := filepath.Join(t.TempDir(), "pid")
	run := s.run("--", "sh", "-c", "echo $$ >"+file+"; exec sleep 60")
	pid := pidsIn(t, file, 1)[0]
	run.cmd.Process.Kill()
	testwait.Until(t, "the command has ended", func() bool { return !alive(pid) })
	testwait.Until(t, "the lock is free", func() bool { return s.field("token") == "" })
}

// With TLS and a client's certificate, as a user with a password, on another database, at a lock
// whose name is not text.
func TestRunLogsIn(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	client := redis.NewClient(testredis.Patient(&redis.Options{Addr: server.Addr(), DB: 3}))
	defer client.Close()
	ctx := context.Background()
	if err := client.Do(ctx, "ACL", "SETUSER", "app", "on", ">"+secret, "~app:*", "resetchannels",
		"&lockproxy:wake:*", "+eval", "+evalsha", "+time", "+mget",
		"+exists", "+pttl", "+set", "+del", "+publish", "+subscribe", "+select").Err(); err != nil {
		t.Fatal(err)
	}
	ca := testtls.NewAuthority(t)
	serving, showing := ca.Issue(t, "lockproxy"), ca.Issue(t, "client")
	addr := fmt.Sprintf("127.0.0.1:%d", testredis.FreePort(t))
	start(t, "--listen", addr, "--upstream", server.URL(), "--tls-cert", serving.CertFile,
		"--tls-key", serving.KeyFile, "--tls-client-ca", ca.File)
	url := "rediss://app:" + secret + "@" +
		net.JoinHostPort("127.0.0.1", strings.Split(addr, ":")[1]) + "/3"
	tls := []string{"run", "--url", url, "--tls-ca", ca.File, "--tls-cert", showing.CertFile,
		"--tls-key", showing.KeyFile}
	spawn(t, nil,
		append(tls, "--key", "app:\xff", "--", "redis-cli", "-p",
			strings.Split(server.Addr(),
				":")[1], "-n", "3", "GET", "app:\xff")...).wantStatus(0, "17")
	spawn(t, nil, append(tls, "--key", "other", "--", "true")...).wantStatus(125, "NOPERM")
	spawn(t, nil, "run", "--url", url, "--tls-ca", ca.File, "--key", "app:x", "--",
		"true").wantStatus(69, "cannot get the lock")
	spawn(t, nil, "run", "--url", url, "--key", "app:x", "--", "true").wantStatus(69,
		"certificate signed by unknown authority")
}
