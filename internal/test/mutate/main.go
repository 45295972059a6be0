package mutate

import (
	"context"
	_ "embed"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
)

//go:embed equivalent.txt
var equivalentText string

// readEquivalent reads the changes that nobody can notice: a line names each, and indented lines
// behind it give the reason.
func readEquivalent(text string) map[string]string {
	reasons, key := map[string]string{}, ""
	for line := range strings.Lines(text) {
		switch {
		case strings.HasPrefix(line, "#") || strings.TrimSpace(line) == "":
		case strings.HasPrefix(line, " "):
			reasons[key] = strings.TrimSpace(reasons[key] + " " + strings.TrimSpace(line))
		default:
			key = strings.TrimSpace(line)
		}
	}
	return reasons
}

// Main runs the program with its arguments, in the root of the tree, and returns its status: 1 if a
// change lives.
func Main(args []string) int {
	flags := flag.NewFlagSet("mutate", flag.ExitOnError)
	seed := flags.Uint64("seed", 1, "the seed that draws the changes")
	count := flags.Int("count", 15, "the number of changes of each place")
	names := flags.String("places", "", "packages, or lua for the scripts (default: all)")
	only := flags.String("only", "", "draw only changes whose names contain this text")
	tests := flags.String("run", "^Test", "run only tests whose names match this expression")
	list := flags.Bool("list", false, "print the changes, and run nothing")
	jobs := flags.Int("jobs", 2, "the number of processes that run tests at the same time")
	flags.Parse(args)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM,
		syscall.SIGHUP)
	defer stop()
	r := &runner{overlay: &overlay{packages: map[string]string{}}, seed: *seed,
		tests: *tests, slots: make(chan struct{}, *jobs), suites: map[string]*suite{}}
	live, err := r.judge(ctx, os.Stdout, strings.Fields(*names), *count, *only, *list)
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		return 2
	}
	if live {
		return 1
	}
	return 0
}

// judge draws changes, runs the tests, and prints what they caught.
func (r *runner) judge(
	ctx context.Context, out io.Writer, names []string, count int, only string, list bool,
) (anyLive bool, err error) {
	if r.root, err = os.Getwd(); err != nil {
		return false, err
	}
	if r.dir, err = os.MkdirTemp("", "lockproxy-mutate-"); err != nil {
		return false, err
	}
	defer os.RemoveAll(r.dir)
	if err := r.seedCache(ctx); err != nil {
		return false, err
	}
	var all [][]*change
	equivalent := readEquivalent(equivalentText)
	for _, p := range places {
		if len(names) > 0 && !slices.Contains(names, p.name) {
			continue
		}
		changes, packageName, err := allChanges(r.root, p.name)
		if err != nil {
			return false, err
		}
		tellGone(out, p.name, changes, equivalent)
		if only != "" {
			changes = slices.DeleteFunc(changes,
				func(c *change) bool { return !strings.Contains(c.key(), only) })
		}
		if len(changes) > 0 {
			r.packages[filepath.Dir(changes[0].file)] = packageName
		}
		all = append(all, inOrder(r.seed, changes))
	}
	drawn, err := r.draw(ctx, all, count, equivalent)
	if err != nil {
		return false, err
	}
	if list {
		for _, c := range drawn {
			fmt.Fprintf(out, "%s:%d %s\n", c.file, c.line, c.key())
		}
		return false, nil
	}
	program := r.command(ctx, r.root, "go", "build", "-overlay", r.file(), "-o",
		filepath.Join(r.dir, "lockproxy"), "./cmd/lockproxy")
	if text, err := program.CombinedOutput(); err != nil {
		return false, fmt.Errorf("%w: %s", err, text)
	}
	return r.report(ctx, out, drawn, equivalent)
}

// tellGone prints what is listed as equivalent at a place, and is no longer there.
func tellGone(out io.Writer, place string, changes []*change, equivalent map[string]string) {
	for key := range equivalent {
		is := func(c *change) bool { return c.key() == key }
		if strings.HasPrefix(key, place+" ") && !slices.ContainsFunc(changes, is) {
			fmt.Fprintf(out, "equivalent.txt lists a change that does not exist any more: %s\n", key)
		}
	}
}

// report runs the tests place by place, prints what each change came to, and then the table.
func (r *runner) report(
	ctx context.Context, out io.Writer, drawn []*change, equivalent map[string]string,
) (anyLive bool, err error) {
	table := "| place | changes | caught | equivalent | live |\n|---|---|---|---|---|\n"
	var total [4]int
	for _, p := range places {
		var n [4]int // changes, caught, equivalent, live
		var mu sync.Mutex
		var all sync.WaitGroup
		workers := make(chan struct{}, cap(r.slots))
		for _, c := range drawn {
			if c.place != p.name {
				continue
			}
			n[0]++
			if equivalent[c.key()] != "" {
				n[2]++
				continue
			}
			all.Go(func() {
				workers <- struct{}{}
				defer func() { <-workers }()
				caughtBy, failed := r.tryAll(ctx, c, p.suites)
				mu.Lock()
				defer mu.Unlock()
				if failed != nil {
					err = failed
				} else if caughtBy == "" {
					n[3]++
					fmt.Fprintf(out, "LIVES  %s:%d %s\n", c.file, c.line, c.key())
				} else {
					n[1]++
					fmt.Fprintf(out, "caught %s by %s\n", c.key(), caughtBy)
				}
			})
		}
		all.Wait()
		if err != nil {
			return false, err
		}
		if n[0] > 0 {
			table += fmt.Sprintf("| %s | %d | %d | %d | %d |\n", p.name, n[0], n[1], n[2], n[3])
		}
		for i := range n {
			total[i] += n[i]
		}
	}
	fmt.Fprintf(out, "\n%s| all | %d | %d | %d | %d |\n", table, total[0], total[1], total[2],
		total[3])
	fmt.Fprintf(out, "\nseed %d: %d of %d changes that are not equivalent were caught\n", r.seed,
		total[1], total[0]-total[2])
	return total[3] > 0, nil
}

// tryAll returns the test, and its package, that catches a change.
func (r *runner) tryAll(ctx context.Context, c *change, suites []string) (string, error) {
	for _, name := range suites {
		s, err := r.suite(ctx, name)
		if err != nil {
			return "", err
		}
		by := s.catch(ctx, c)
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		if by != "" {
			return name + ": " + by, nil
		}
	}
	return "", nil
}
