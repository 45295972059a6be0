// Command lockbench measures lockproxy next to what it is compared with, on this machine, in one
// run: it starts every server that it needs on free loopback ports, drives them in turn, several
// rounds, and prints medians and spreads as Markdown.
//
// A report (command.go) is made of documents, a document of parts. A part starts its servers
// (target.go) and runs jobs. A job runs its cases one after the other in every round, so that a
// disturbance from outside meets all of them, and makes tables and figures of the results
// (section.go). The jobs are relay, lone and halfLoad (latency.go), pairs, idle, scale, cluster,
// order, profiled, and the lock workloads contention, waiting, seed and parking. shardCost,
// holdTimes, footprint and takeover are of the sizing model.
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
	var f flags
	exited := false
	parser, err := kong.New(&f, kong.Name("lockbench"), kong.Description(description), flagHelp,
		kong.Writers(stdout, stderr), kong.Exit(func(int) { exited = true }))
	if err != nil {
		return err
	}
	_, err = parser.Parse(args)
	switch {
	case exited:
		return nil
	case err != nil:
		return fmt.Errorf("%w; see lockbench --help", err)
	}
	err = report(ctx, &f, f.documents(), stdout, newProgress(stderr))
	if cause := context.Cause(ctx); cause != nil && errors.Is(err, context.Canceled) {
		return fmt.Errorf("ended early, without a report: %w", cause)
	}
	return err
}
