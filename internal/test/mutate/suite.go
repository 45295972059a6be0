package mutate

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A runner runs tests, a few processes at a time.
type runner struct {
	*overlay
	seed  uint64
	tests string // an expression for their names
	slots chan struct{}

	mu     sync.Mutex
	suites map[string]*suite
}

// A suite is the tests of one package, which are compiled and asked for what they reach when a
// change first needs them.
type suite struct {
	*runner
	name  string
	once  sync.Once
	err   error
	flags []string // for rapid, if it is used
	found []*test  // the quick ones first
}

type test struct {
	name    string
	took    time.Duration // alone, without a change
	reaches map[int]bool
}

func (r *runner) suite(ctx context.Context, name string) (*suite, error) {
	r.mu.Lock()
	s := r.suites[name]
	if s == nil {
		s = &suite{runner: r, name: name}
		r.suites[name] = s
	}
	r.mu.Unlock()
	s.once.Do(func() { s.err = s.prepare(ctx) })
	return s, s.err
}

func (s *suite) binary() string {
	return filepath.Join(s.dir, strings.ReplaceAll(s.name, "/", "+")+".test")
}

// patience is how long tests may run that took so long without a change.
func patience(took time.Duration) time.Duration { return 20*time.Second + 5*took }

// longest is how long a test may take without a change.
const longest = 5 * time.Minute

// tags are those of tests that judge changes, too.
const tags = "memory"

func (s *suite) prepare(ctx context.Context) error {
	compile := s.command(ctx, s.root, "go", "test", "-c", "-vet=off", "-tags", tags, "-overlay",
		s.file(), "-o", s.binary(), "./"+s.name)
	if out, err := compile.CombinedOutput(); err != nil {
		return fmt.Errorf("compiling the tests of %s: %w: %s", s.name, err, out)
	}
	binary, err := os.ReadFile(s.binary())
	if err != nil {
		return nil // there are no tests
	}
	if bytes.Contains(binary, []byte("rapid.nofailfile")) {
		s.flags = []string{"-rapid.nofailfile"} // the tree stays as it is
	}
	list := s.command(ctx, filepath.Join(s.root, s.name), s.binary(), "-test.list", s.tests)
	out, err := list.Output()
	if err != nil {
		return fmt.Errorf("listing the tests of %s: %w", s.name, err)
	}
	var all sync.WaitGroup
	for name := range strings.FieldsSeq(string(out)) {
		if !strings.HasPrefix(name, "Test") {
			continue
		}
		t := &test{name: name}
		s.found = append(s.found, t)
		all.Go(func() {
			reached := filepath.Join(s.dir, "reached+"+filepath.Base(s.binary())+"+"+name)
			began := time.Now()
			outcome := s.run(ctx, 0, []*test{t}, longest, reachVariable+"="+reached)
			t.took = time.Since(began)
			if ctx.Err() != nil {
				return
			}
			if outcome != "" {
				fmt.Fprintf(os.Stderr, "%s of %s fails without a change, and is left out\n", name, s.name)
				return
			}
			t.reaches = readNumbers(reached)
		})
	}
	all.Wait()
	s.found = slices.DeleteFunc(s.found, func(t *test) bool { return t.reaches == nil })
	slices.SortStableFunc(s.found, func(a, b *test) int { return cmp.Compare(a.took, b.took) })
	return nil
}

func readNumbers(path string) map[int]bool {
	numbers := map[int]bool{}
	file, err := os.Open(path)
	if err != nil {
		return numbers // nothing was reached
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if n, err := strconv.Atoi(lines.Text()); err == nil {
			numbers[n] = true
		}
	}
	return numbers
}

// run runs tests with a change. It returns the test that failed; "" if all passed.
func (r *suite) run(
	ctx context.Context, number int, tests []*test, bound time.Duration, env ...string,
) (failed string) {
	r.slots <- struct{}{}
	defer func() { <-r.slots }()
	names := make([]string, len(tests))
	for i, t := range tests {
		names[i] = t.name
	}
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	cmd := r.command(ctx, filepath.Join(r.root, r.name), r.binary(), append(slices.Clone(r.flags),
		"-test.failfast", "-test.v", "-test.run", "^("+strings.Join(names, "|")+")$")...)
	cmd.Env = append(cmd.Env, fmt.Sprintf("%s=%d", changeVariable, number),
		"LOCKPROXY_TEST_BINARY="+filepath.Join(r.dir, "lockproxy"),
		fmt.Sprintf("LOCKPROXY_TEST_TRANSPORT=%d", r.seed))
	cmd.Env = append(cmd.Env, env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if err == nil {
		return ""
	}
	if match := failure.FindSubmatch(out.Bytes()); match != nil {
		return string(match[1])
	}
	if begun := begins.FindAllSubmatch(out.Bytes(), -1); begun != nil {
		return string(begun[len(begun)-1][1])
	}
	return names[0] // the program does not start
}

var (
	failure = regexp.MustCompile(`(?m)^\s*--- FAIL: (\w+)`)
	begins  = regexp.MustCompile(`(?m)^=== (?:RUN|CONT) +(\w+)`)
)

// catch returns the test that catches a change; "" if none does. It runs more and more tests in
// one process.
func (s *suite) catch(ctx context.Context, c *change) (caughtBy string) {
	var tests []*test
	for _, t := range s.found {
		if c.place == luaPlace || t.reaches[c.number] {
			tests = append(tests, t)
		}
	}
	for size := 4; len(tests) > 0 && ctx.Err() == nil; size *= 2 {
		some := tests[:min(size, len(tests))]
		tests = tests[len(some):]
		for caughtBy == "" {
			var took time.Duration
			for _, t := range some {
				took += t.took
			}
			caughtBy = s.run(ctx, c.number, some, patience(took))
			if caughtBy == "" || ctx.Err() != nil {
				break
			}
			one := slices.IndexFunc(some, func(t *test) bool { return t.name == caughtBy })
			if s.run(ctx, 0, some[one:one+1], longest) != "" {
				fmt.Fprintf(os.Stderr, "%s of %s fails without a change, too\n", caughtBy, s.name)
				some = slices.Delete(slices.Clone(some), one, one+1)
				if caughtBy = ""; len(some) == 0 {
					break
				}
			}
		}
		if caughtBy != "" {
			return caughtBy
		}
	}
	return ""
}
