package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/proxytest"
	"lockproxy/internal/testredis"
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
		{"forced", []string{"--timeout", "30"},
			func(s *served, _ *process) { s.do("UNLOCK", "job", "FORCE") }, "lost the lock"},
		{"forced, RESP2", []string{"--timeout", "30"},
			func(s *served, _ *process) { s.do("UNLOCK", "job", "FORCE") }, "lost the lock"},
		{"deleted", []string{"--timeout", "30"},
			func(s *served, _ *process) { s.do("DEL", "job") }, "lost the lock"},
		{"proxy killed", []string{"--timeout", "30"},
			func(s *served, _ *process) { s.proxy.signal(syscall.SIGKILL) },
			"the connection to the proxy was lost"},
		{"proxy ended", []string{"--timeout", "30"},
			func(s *served, _ *process) { s.proxy.signal(syscall.SIGTERM) },
			"the connection to the proxy was lost"},
		{"Redis killed", []string{"--timeout", "1"}, func(s *served, _ *process) { s.redis.Kill() },
			"lost the lock"},
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
			pids := pidsIn(t, file, 2)
			begun := time.Now()
			c.lose(s, run)
			run.wantStatus(exitLost, c.say)
			if took := time.Since(begun); took > 3*time.Second+proxytest.Late() {
				t.Errorf("it took %v", took)
			}
			for _, pid := range pids {
				if alive(pid) {
					t.Errorf("process %d is still there", pid)
				}
			}
		})
	}
}

// A lock that is forced through another proxy ends the command within a second, however long the
// timeout is.
func TestRunHearsOfForceElsewhere(t *testing.T) {
	t.Parallel()
	s := serveRuns(t)
	addr := fmt.Sprintf("127.0.0.1:%d", testredis.FreePort(t))
	start(t, "--listen", addr, "--upstream", s.redis.URL())
	file := filepath.Join(t.TempDir(), "pid")
	run := s.run("--timeout", "600", "--", "sh", "-c", "echo $$ >"+file+"; exec sleep 60")
	pidsIn(t, file, 1)
	time.Sleep(200 * time.Millisecond) // until the proxy listens
	other := redis.NewClient(&redis.Options{Addr: addr, DisableIdentity: true})
	defer other.Close()
	begun := time.Now()
	if n, err := other.Do(context.Background(), "UNLOCK", "job", "FORCE").Int(); n != 1 {
		t.Fatal(n, err)
	}
	run.wantStatus(exitLost, "lost the lock")
	if took := time.Since(begun); took > time.Second+proxytest.Late() {
		t.Errorf("it took %v", took)
	}
}

// A run whose lock is lost ends as soon as its command has ended on SIGTERM.
func TestRunLetsTheCommandEnd(t *testing.T) {
	t.Parallel()
	s := serveRuns(t)
	file := filepath.Join(t.TempDir(), "pid")
	run := s.run("--timeout", "3", "--kill-after", "15", "--", "sh", "-c",
		`trap "echo cleaning up; exit 0" TERM; echo $$ >`+file+`; while :; do sleep 0.02; done`)
	pidsIn(t, file, 1)
	begun := time.Now()
	s.do("DEL", "job")
	run.wantStatus(exitLost, "cleaning up")
	if took := time.Since(begun); took > 3*time.Second+proxytest.Late() {
		t.Errorf("it took %v", took)
	}
}

// A proxy that says nothing at all proves nothing: the command has ended before Redis may give the
// lock to another.
func TestRunTrustsNoSilentProxy(t *testing.T) {
	t.Parallel()
	s := serveRuns(t)
	file := filepath.Join(t.TempDir(), "pids")
	run := s.run("--timeout", "2", "--kill-after", "5", "--", "sh", "-c", `trap "" TERM; echo $$ >`+
		file+`; while echo >`+file+`.alive; do sleep 0.02; done`)
	pidsIn(t, file, 1)
	time.Sleep(700 * time.Millisecond) // until it has been renewed
	pauseProcess(t, s.proxy)
	defer s.proxy.cmd.Process.Signal(syscall.SIGCONT)
	direct := redis.NewClient(&redis.Options{Addr: s.redis.Addr()})
	defer direct.Close()
	expires, err := direct.Get(context.Background(), "job").Int64()
	if err != nil {
		t.Fatal(err)
	}
	run.wantStatus(exitLost, "the proxy has not renewed it in time")
	last, err := os.Stat(file + ".alive")
	if err != nil || last.ModTime().Add(-proxytest.Late()).UnixMilli() >= expires {
		t.Errorf("last alive at %d, the lock's time was %d, %v", last.ModTime().UnixMilli(),
			expires, err)
	}
}
