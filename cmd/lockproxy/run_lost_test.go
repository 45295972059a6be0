package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/test/testredis"
)

// A lost lock ends the command and all that it has started, even processes that ignore SIGTERM,
// however the loss is noticed.
func TestRunEndsWhatHasLostItsLock(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		args []string // of run
		lose func(s *served, run *process)
		say  string
	}{
		{"forced", []string{"--timeout", "3600"},
			func(s *served, _ *process) { s.do("UNLOCK", "job", "FORCE") }, "lost the lock"},
		{"forced, RESP2", []string{"--timeout", "3600"},
			func(s *served, _ *process) { s.do("UNLOCK", "job", "FORCE") }, "lost the lock"},
		{"deleted", []string{"--timeout", "3600"},
			func(s *served, _ *process) { s.do("DEL", "job") }, "lost the lock"},
		{"held for too long", []string{"--timeout", "3600", "--max", "1"},
			func(*served, *process) {}, "it has been held for as long as --max allows"},
		{"proxy killed", []string{"--timeout", "3600"},
			func(s *served, _ *process) { s.proxy.signal(syscall.SIGKILL) },
			"the connection to the proxy was lost"},
		{"proxy ended", []string{"--timeout", "3600"},
			func(s *served, _ *process) { s.proxy.signal(syscall.SIGTERM) },
			"the connection to the proxy was lost"},
		{"Redis killed", []string{"--timeout", "5"}, func(s *served, _ *process) { s.redis.Kill() },
			"has not renewed it in time"},
		// A proxy that says nothing at all proves nothing. TestLease has the times.
		{"proxy silent", []string{"--timeout", "5"},
			func(s *served, _ *process) { pauseProcess(s.t, s.proxy) }, "has not renewed it in time"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			// for so long a proxy that ends waits for who holds a lock
			s := serveRuns(t, "--shutdown-timeout", "500ms")
			if strings.Contains(c.name, "RESP2") {
				s.do("ACL", "SETUSER", "default", "-hello")
			}
			file := filepath.Join(t.TempDir(), "pids")
			run := s.run(append(append(c.args, "--kill-after", "0.3", "--"), stubborn(file)...)...)
			pids := pidsIn(t, file, 2, run) // the lock can be lost before on a slow machine
			c.lose(s, run)
			run.wantStatus(exitLost, c.say)
			for _, pid := range pids {
				if alive(pid) {
					t.Errorf("process %d is still there", pid)
				}
			}
		})
	}
}

// A lock that is forced through another proxy ends the command, however long the timeout is.
func TestRunHearsOfForceElsewhere(t *testing.T) {
	t.Parallel()
	s := serveRuns(t)
	addr := fmt.Sprintf("127.0.0.1:%d", testredis.FreePort(t))
	start(t, "--listen", addr, "--upstream", s.redis.URL())
	file := filepath.Join(t.TempDir(), "pid")
	run := s.run("--timeout", "3600", "--", "sh", "-c", "echo $$ >"+file+"; exec sleep 60")
	pidsIn(t, file, 1)
	other := redis.NewClient(testredis.Patient(&redis.Options{Addr: addr, DisableIdentity: true}))
	defer other.Close()
	if n, err := other.Do(context.Background(), "UNLOCK", "job", "FORCE").Int(); n != 1 {
		t.Fatal(n, err)
	}
	run.wantStatus(exitLost, "lost the lock")
}

// A run whose lock is lost ends as soon as its command has ended on SIGTERM.
func TestRunLetsTheCommandEnd(t *testing.T) {
	t.Parallel()
	s := serveRuns(t)
	file := filepath.Join(t.TempDir(), "pid")
	run := s.run("--timeout", "3600", "--kill-after", "1000", "--", "sh", "-c",
		`trap "echo cleaning up; exit 0" TERM; echo $$ >`+file+`; while :; do sleep 0.02; done`)
	pidsIn(t, file, 1)
	s.do("DEL", "job")
	run.wantStatus(exitLost, "cleaning up")
}
