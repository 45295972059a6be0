package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"testing"

	"lockproxy/internal/test/testwait"
)

// The lock stays after a success, for the rest of --once from the start of the command, and is free
// after a failure.
func TestRunOnce(t *testing.T) {
	t.Parallel()
	s := serveRuns(t)
	s.run("--once", "23h", "--", "sh", "-c", "exit 3").wantStatus(3, "")
	s.run("--once", "23h", "--", "sh", "-c", "kill -TERM $$").wantStatus(143, "")
	s.run("--once", "23h", "--", "no-such-command").wantStatus(127, "cannot run")
	if s.field("token") != "" {
		t.Fatal("the lock is held after failures")
	}
	file := filepath.Join(t.TempDir(), "env")
	first := s.run("--once", "23h", "--", "sh", "-c", "echo $LOCKPROXY_TOKEN >"+file+"; read x <"+
		fifo(t, file))
	token := strconv.Itoa(pidsIn(t, file, 1)[0])
	if s.field("session") != "1" {
		t.Error("no session lock while the command runs")
	}
	s.run("--once", "23h", "--", "true").wantStatus(75, "another client holds the lock \"job\" "+
		"(\"")
	goOn(t, file)
	first.wantStatus(0, "")
	rest, _ := strconv.Atoi(s.field("remaining_ms"))
	if s.field("session") != "0" || s.field("token") != token || rest <= 0 || rest > 23*3600*1000 {
		t.Errorf("session %s, token %s (the run had %s), for %d ms", s.field("session"),
			s.field("token"), token, rest)
	}
	s.run("--once", "23h", "--", "true").wantStatus(75, "as after a run that has succeeded (\"")
	s.run("--once", "23h", "-q", "-E", "0", "--", "false").wantStatus(0, "")
	s.run("--", "true").wantStatus(75, "another client holds the lock")
	s.do("UNLOCK", "job", "FORCE")
	s.run("--once", "20", "--", "true").wantStatus(0, "") // less than --timeout
	if rest, _ := strconv.Atoi(s.field("remaining_ms")); rest > 20_000 {
		t.Errorf("--once 20 keeps the lock for another %d ms", rest)
	}
	s.do("UNLOCK", "job", "FORCE")
	s.run("--once", "23h", "--", "true").wantStatus(0, "")
	s.run("--once", "23h", "--shared", "--", "true").wantStatus(125, "can't be used together")

	s.run("--once", "25h", "--key", "many", "--", "touch", file+".wrong").wantStatus(125,
		"--once: ERR timeout")
	if _, err := os.Stat(file + ".wrong"); err == nil {
		t.Error("the command ran, though the lock could not be kept for so long")
	}
	s.run("--once", "1", "--key", "a", "--key", "long", "--", "sh", "-c",
		"sleep 1.1").wantStatus(0, "")
	s.run("--key", "a", "--key", "long", "--", "true").wantStatus(0, "")
	s.run("--once", "23h", "--key", "a", "--key", "b", "--", "true").wantStatus(0, "")
	for _, key := range []string{"a", "b"} {
		s.run("--key", key, "--", "true").wantStatus(75, "another client holds the lock")
	}
}

// A lock that the run no longer has when its command ends is not called kept.
func TestRunOnceOfALostLock(t *testing.T) {
	t.Parallel()
	s := serveRuns(t)
	file := filepath.Join(t.TempDir(), "env")
	run := s.run("--once", "23h", "--timeout", "3600", "--", "sh", "-c",
		`trap "" TERM; echo $$ >`+file+"; read x <"+fifo(t, file))
	pidsIn(t, file, 1)
	s.do("UNLOCK", "job", "FORCE")
	s.do("LOCK", "job", "3600", "OWNER", "other")
	goOn(t, file)
	run.wantStatus(124, "lost")
	if owner := s.field("owner"); owner != "other" {
		t.Errorf("%q has the lock", owner)
	}
}

// A proxy that is away when the command ends is asked again: it keeps the lock for the rest.
func TestRunOnceWhileTheProxyIsAway(t *testing.T) {
	t.Parallel()
	s := serveRuns(t)
	file := filepath.Join(t.TempDir(), "env")
	run := s.run("--once", "23h", "--timeout", "3600", "--", "sh", "-c",
		"echo $$ >"+file+"; read x <"+fifo(t, file))
	pidsIn(t, file, 1)
	s.redis.Ask("CLIENT", "PAUSE", "3600000", "WRITE")
	goOn(t, file)
	testwait.Until(t, "Redis delays the run's LOCK", func() bool {
		script := regexp.MustCompile(` flags=bU? [^\n]* cmd=eval(sha)? `)
		return script.MatchString(s.redis.Ask("CLIENT", "LIST"))
	})
	s.proxy.signal(syscall.SIGKILL) // and its address is free
	s.redis.Ask("CLIENT", "UNPAUSE")
	start(t, "--listen", s.addr, "--upstream", s.redis.URL())
	run.wantStatus(0, "")
	if s.field("session") != "0" {
		t.Errorf("session %s; want the lock kept", s.field("session"))
	}
}
