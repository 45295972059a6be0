package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
)

// served is a lockproxy in front of a real Redis, for run's tests.
type served struct {
	t     *testing.T
	redis *testredis.Server
	proxy *process
	addr  string
	url   string
	ask   *redis.Client // of the proxy
}

func serveRuns(t *testing.T, args ...string) *served {
	t.Helper()
	server := testredis.Start(t)
	addr := fmt.Sprintf("127.0.0.1:%d", testredis.FreePort(t))
	s := &served{t: t, redis: server, addr: addr, url: "redis://" + addr}
	s.proxy = start(t, append([]string{"--listen", addr, "--upstream", server.URL()}, args...)...)
	s.ask = redis.NewClient(testredis.Patient(&redis.Options{Addr: addr, Protocol: 2, MaxRetries: -1,
		DisableIdentity: true}))
	t.Cleanup(func() { s.ask.Close() })
	return s
}

// run starts lockproxy run with LOCKPROXY_URL set, on the lock "job" unless args say otherwise.
func (s *served) run(args ...string) *process {
	key := []string{"run", "--key", "job"}
	if slices.Contains(args, "--key") {
		key = key[:1]
	}
	return spawn(s.t, []string{"LOCKPROXY_URL=" + s.url}, append(key, args...)...)
}

func (p *process) wantStatus(want int, say string) {
	p.t.Helper()
	if got := p.status(); got != want || !strings.Contains(p.said(), say) {
		p.t.Errorf("%v: status %d, want %d and %q:\n%s", p.cmd.Args[1:], got, want, say, p.said())
	}
}

// field is one of LOCKINFO's of the lock "job"; "" if it is free.
func (s *served) field(name string) string {
	s.t.Helper()
	info, err := s.ask.Do(context.Background(), "LOCKINFO", "job").Slice()
	if err == redis.Nil {
		return ""
	}
	if err != nil {
		s.t.Fatal(err)
	}
	for i := 0; i+1 < len(info); i += 2 {
		if info[i] == name {
			return fmt.Sprint(info[i+1])
		}
	}
	s.t.Fatalf("LOCKINFO has no %s", name)
	return ""
}

func (s *served) do(args ...any) any {
	s.t.Helper()
	got, err := s.ask.Do(context.Background(), args...).Result()
	if err != nil {
		s.t.Fatalf("%v: %v", args, err)
	}
	return got
}

// alive reports whether a process runs, and is not only waiting to be taken away.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, state, _ := strings.Cut(string(stat), ") ")
	return err == nil && !strings.HasPrefix(state, "Z") && !strings.HasPrefix(state, "X")
}

// pidsIn waits for n lines in a file, each the number of a process, or until one of runs has ended.
func pidsIn(t *testing.T, file string, n int, runs ...*process) (pids []int) {
	t.Helper()
	testwait.Until(t, fmt.Sprintf("%d processes have written their numbers", n), func() bool {
		pids = nil
		text, _ := os.ReadFile(file)
		for _, word := range strings.Fields(string(text)) {
			pid, err := strconv.Atoi(word)
			if err != nil {
				t.Fatal(err)
			}
			pids = append(pids, pid)
		}
		return len(pids) >= n || slices.ContainsFunc(runs, (*process).hasEnded)
	})
	return pids
}

// stubborn is a shell program that writes its process number and that of one that it has started,
// to a file; both ignore TERM.
func stubborn(file string) []string {
	return []string{"sh", "-c",
		`trap "" TERM; sh -c 'trap "" TERM; echo $$; while :; do sleep 0.05; done' >>` + file +
			` & echo $$ >>` + file + `; while :; do sleep 0.05; done`}
}

func fifo(t *testing.T, file string) string {
	t.Helper()
	if err := syscall.Mkfifo(file+".fifo", 0o600); err != nil {
		t.Fatal(err)
	}
	return file + ".fifo"
}

// goOn lets a program go on that reads a line from the fifo. It does not wait for the program, which
// may have ended instead.
func goOn(t *testing.T, file string) {
	t.Helper()
	// Opened for reading too, it does not block, and keeps what is written until the test ends.
	f, err := os.OpenFile(file+".fifo", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if _, err := f.WriteString("go on\n"); err != nil {
		t.Fatal(err)
	}
}

func pauseProcess(t *testing.T, p *process) {
	t.Helper()
	p.cmd.Process.Signal(syscall.SIGSTOP)
	testwait.Until(t, "the proxy stops on SIGSTOP", func() bool {
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
		return strings.Contains(string(stat), ") T ")
	})
}
