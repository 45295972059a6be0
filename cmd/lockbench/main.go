// Command lockbench measures lockproxy beside what it is compared with, on this machine, in one run: it starts every server that
// it needs on free loopback ports, drives them in turn, several rounds, and prints medians and spreads as Markdown.
//
// Each subcommand is one report. A report is a list of sections; a section runs its cases one after the other in every round
// (interleaved, so that a disturbance from outside meets all of them) and makes a table.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
)

type commands struct {
	Locks locksCmd `cmd:"" help:"Lock workloads: LOCK through one and two proxies, beside rueidislock, bsm/redislock and polling recipes directly on the same Redis."`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "lockbench: %v\n", err)
		os.Exit(1)
	}
}

// run is main without the process. When it returns, all that it started has ended.
func run(ctx context.Context, args []string, stdout io.Writer, stderr *os.File) error {
	var c commands
	exited := false
	parser, err := kong.New(&c, kong.Name("lockbench"), kong.Description("Measures lockproxy beside what it is compared with."),
		kong.Writers(stdout, stderr), kong.Exit(func(int) { exited = true }))
	if err != nil {
		return err
	}
	chosen, err := parser.Parse(args)
	switch {
	case exited:
		return nil
	case err != nil:
		return fmt.Errorf("%w; see lockbench --help", err)
	}
	chosen.BindTo(ctx, (*context.Context)(nil))
	chosen.BindTo(stdout, (*io.Writer)(nil))
	chosen.Bind(newProgress(stderr))
	err = chosen.Run()
	if cause := context.Cause(ctx); cause != nil && errors.Is(err, context.Canceled) {
		return fmt.Errorf("ended early, without a report: %w", cause)
	}
	return err
}
