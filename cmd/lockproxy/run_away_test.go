package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"lockproxy/internal/test/testwait"
)

// Runs that wait are given their lock, however often the proxy is replaced meanwhile: they ask again
// for the rest of their wait, and forever stays forever.
func TestRunOutlivesTheProxy(t *testing.T) {
	t.Parallel()
	handover := []string{"--handover", filepath.Join(t.TempDir(), "handover.sock")}
	s := serveRuns(t, handover...)
	args := append([]string{"--listen", s.addr, "--upstream", s.redis.URL()}, handover...)
	nc, err := net.Dial("tcp", s.addr) // closed again: a proxy that ends gives holders time
	token := strings.Trim(ask(t, nc, err, "LOCK job 3600"), ":\r\n")
	runs := []*process{s.run("--wait", "0", "--", "sh", "-c", "echo $LOCKPROXY_TOKEN"),
		s.run("--wait", "3600", "--", "sh", "-c", "echo $LOCKPROXY_TOKEN")}
	rest := int64(3600_000)
	waiting := func(behind string) {
		t.Helper()
		var waits []int64 // in ms
		testwait.Until(t, "both wait behind the proxy "+behind, func() bool {
			list, err := s.ask.Do(context.Background(), "LOCKINFO", "job", "WAITERS").Slice()
			waits = nil
			for _, waiter := range list { // err: the old proxy has closed the connection
				fields := map[any]any{}
				for pair := range slices.Chunk(waiter.([]any), 2) {
					fields[pair[0]] = pair[1]
				}
				until, _ := fields["until_ms"].(int64)
				since, _ := fields["since_ms"].(int64)
				if fields["proxy"] == nil { // the proxy before
					waits = append(waits, max(until-since, 0))
				}
			}
			if slices.ContainsFunc(runs, (*process).hasEnded) {
				t.Fatalf("behind the proxy %s one ends:\n%s%s", behind, runs[0].said(),
					runs[1].said())
			}
			return err == nil && len(waits) == 2
		})
		slices.Sort(waits)
		if waits[0] != 0 || waits[1] <= 0 || waits[1] > rest {
			t.Errorf("behind the proxy %s they wait for %v ms, want 0 and at most %d", behind,
				waits, rest)
		}
		rest = waits[1] - 1
	}
	waiting("of the beginning")

	old := s.proxy
	s.proxy = start(t, args...)
	old.status()
	waiting("that has taken over")

	s.proxy.signal(syscall.SIGTERM)
	for _, run := range runs {
		run.waitFor("trying again")
	}
	s.proxy = start(t, args...)
	waiting("that was started again")

	s.proxy.signal(syscall.SIGKILL)
	s.proxy = start(t, args...)
	waiting("that was killed")

	s.do("UNLOCK", "job", token)
	for _, run := range runs {
		run.wantStatus(0, "")
	}
}

// Without a proxy a run tries for a time, of which it tells, and then ends with its own status.
func TestRunWithoutAProxy(t *testing.T) {
	t.Parallel()
	command, err := parse([]string{"run", "--key", "job", "--url", "redis://127.0.0.1:1", "--wait",
		"0", "--", "true"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	run := command.(*runCommand)
	run.within /= 30
	var said strings.Builder
	status := run.execute(io.Discard, &said)
	refused := "cannot reach the proxy that --url names: dial tcp 127.0.0.1:1: connect: connection " +
		"refused"
	if want := "lockproxy run: " + refused + "; trying again for 1s\n" +
		`lockproxy run: cannot get the lock "job": ` + refused + "; true was not run\n"; said.String() != want ||
		status != exitUnreachable {
		t.Errorf("status %d:\n%s", status, said.String())
	}
}

// The error names the one that does not answer: the proxy, or the Redis behind it.
func TestSilenceIsExplained(t *testing.T) {
	t.Parallel()
	s := serveRuns(t)
	hangs := &target{URL: s.url}
	if err := hangs.parse(); err != nil {
		t.Fatal(err)
	}
	s.redis.Pause()
	defer s.redis.Resume()
	ctx, cancel := context.WithCancel(context.Background())
	explained := make(chan string, 1)
	go func() { // ends with ctx
		err, known := hangs.explain(ctx, os.ErrDeadlineExceeded)
		explained <- fmt.Sprintln(known, err)
	}()
	want := "true " + s.addr + " answers, but the Redis behind it does not answer\n"
	if got := testwait.For(t, "the explanation", explained); got != want {
		t.Errorf("while Redis hangs: %s", got)
	}
	pauseProcess(t, s.proxy)
	cancel() // nothing is answered, for however long
	err, known := hangs.explain(ctx, os.ErrDeadlineExceeded)
	if known || !strings.Contains(err.Error(), s.addr+" does not answer: the process hangs") {
		t.Errorf("while the proxy hangs: %v", err)
	}
}

// A run within its own lock would wait for itself.
func TestRunWithinItself(t *testing.T) {
	t.Parallel()
	s := serveRuns(t)
	self := func(args ...string) []string {
		return append([]string{"env", asProgram + "=1", os.Args[0], "run"}, args...)
	}
	for _, c := range []struct {
		name   string
		runs   [][]string
		status int
	}{
		{"the same", [][]string{{"--key", "a"}, {"--key", "a", "--wait", "0"}}, exitRunFailed},
		{"without a wait", [][]string{{"--key", "a"}, {"--key", "a"}}, exitRunFailed},
		{"others", [][]string{{"--key", "a b"}, {"--key", "a"}, {"--key", "b"}}, 0},
		{"another between", [][]string{{"--key", "a"}, {"--key", "b"}, {"--key", "a"}},
			exitRunFailed},
		{"one of several", [][]string{{"--key", "a", "--key", "é \n"}, {"--key", "b"},
			{"--key", "c", "--key", "é \n"}}, exitRunFailed},
		{"both shared", [][]string{{"--key", "a", "--shared"}, {"--key", "a", "--shared"}}, 0},
		{"the inner one is exclusive", [][]string{{"--key", "a", "--shared"}, {"--key", "a"}},
			exitRunFailed},
		{"the outer one is exclusive", [][]string{{"--key", "a"}, {"--key", "a", "--shared"}},
			exitRunFailed},
		{"one of two", [][]string{{"--key", "a", "--limit", "2"}, {"--key", "a", "--limit", "2"}}, 0},
		{"one of one", [][]string{{"--key", "a", "--shared"}, {"--key", "a", "--limit", "1"}},
			exitRunFailed},
	} {
		var line []string
		for _, run := range c.runs {
			line = append(line, append(self(run...), "--")...)
		}
		p := spawnBy(t, []string{"LOCKPROXY_URL=" + s.url}, append(line, "true")...)
		say := ""
		if c.status != 0 {
			say = "(LOCKPROXY_HELD): it would wait for itself"
		}
		if p.wantStatus(c.status, say); c.status == 0 && p.said() != "" {
			t.Errorf("%s: %s", c.name, p.said())
		}
	}
	// A lock that the environment names is another's, or free, by now.
	old := spawnBy(t, []string{"LOCKPROXY_URL=" + s.url, "LOCKPROXY_HELD=a=1795836123456789"},
		append(self("--key", "a", "--"), "true")...)
	old.wantStatus(0, "")
}
