// Command lockbench measures lockproxy beside what it is compared with, on this machine, in one run: it starts every server that
// it needs on free loopback ports, drives them in turn, several rounds, and prints medians and spreads as Markdown.
//
// Each subcommand is a report (document.go) of one part, all of them of every part (bench.go). A part starts its servers (target.go)
// and runs jobs: a job runs its cases one after the other in every round (interleaved, so that a disturbance from outside meets all of
// them) and makes tables and figures of the results (section.go). The jobs are relay, lone and halfLoad (latency.go), pairs, idle,
// scale, cluster, order, profiled, and the lock workloads contention, waiting and seed.
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
	All     allCmd     `cmd:"" help:"Everything below, in about 20 minutes (with --quick in 4)."`
	Relay   relayCmd   `cmd:"" help:"GET and SET by redis-benchmark through lockproxy, HAProxy and twemproxy, as ratios to direct Redis."`
	Latency latencyCmd `cmd:"" help:"What each proxy adds to the latency of one client, and at half load."`
	Pairs   pairsCmd   `cmd:"" help:"LOCK and UNLOCK on a key of each client's own, beside bsm/redislock and rueidislock directly."`
	Idle    idleCmd    `cmd:"" help:"Memory of 10,000 idle connections, and what active ones among them notice."`
	Scale   scaleCmd   `cmd:"" help:"Throughput and CPU per command with 1 to 5,000 clients."`
	Cluster clusterCmd `cmd:"" help:"GET and SET on a Redis Cluster through lockproxy, as ratios to a client that knows clusters."`
	Order   orderCmd   `cmd:"" help:"Whose request Redis runs first of two clients' that follow each other closely, next to HAProxy."`
	Profile profileCmd `cmd:"" help:"What lockproxy does with its processor time in some of these workloads."`
	Locks   locksCmd   `cmd:"" help:"Lock workloads: LOCK through one and two proxies, beside rueidislock, bsm/redislock and polling recipes directly on the same Redis."`
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
	err = report(ctx, chosen.Selected().Target.Addr().Interface().(command), stdout, newProgress(stderr))
	if cause := context.Cause(ctx); cause != nil && errors.Is(err, context.Canceled) {
		return fmt.Errorf("ended early, without a report: %w", cause)
	}
	return err
}
