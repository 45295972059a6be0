// Command lockbench measures lockproxy next to other ways to reach Redis and to lock, on this
// machine. It starts every server that it needs on a free loopback port, and drives the ways in
// turn, in several rounds. It writes all figures to a CSV file, and their medians as Markdown.
//
// A suite (suite.go) has cases: a workload by one way to do it. In every round all ways run a
// workload one right after the other, so that a disturbance from outside affects all of them. A
// case starts from an empty Redis and returns figures. A suite lists the columns that it shows, and
// the way that the others are compared with; table.go does the rest.
//
// redis-benchmark drives relay, cluster and parts of idle. A light client (client.go) drives the
// rest, since clients share the machine with the servers. servers.go starts programs, topology.go
// knows the arguments of each, redis.go and process.go read how much they have used, and page.go
// fills docs/bench.md.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
)

// flags is the command line.
type flags struct {
	Suites    []string      `arg:"" enum:"${suites}" help:"What to measure."`
	Proxy     []proxyBinary `placeholder:"[NAME=]PATH" sep:"none" help:"${proxy}"`
	ProxyArgs string        `env:"LOCKBENCH_PROXY_ARGS" placeholder:"FLAGS" help:"${args}"`
	Only      string        `placeholder:"TEXT" help:"Run only workloads whose names contain it."`
	Rounds    int           `help:"The number of rounds (default: as the suite needs)."`
	Quick     bool          `short:"q" help:"${quick}"`
	Output    string        `short:"o" placeholder:"FILE.md" help:"${output}"`
	Page      string        `placeholder:"FILE.md" help:"${page}"`
}

// proxyBinary is a lockproxy to measure, and its name in the report.
type proxyBinary struct{ name, path string }

func (p *proxyBinary) UnmarshalText(text []byte) error {
	name, path, named := strings.Cut(string(text), "=")
	if !named {
		name, path = viaLockproxy, string(text)
	}
	*p = proxyBinary{name, path}
	return nil
}

const description = `Measures lockproxy next to other ways to reach Redis and to lock.

    relay    GET and SET by redis-benchmark, directly and through lockproxy, HAProxy and twemproxy
    visits   clients that connect, GET and close, with and without a login or TLS to Redis
    idle     memory of 10,000 idle connections, and the speed of active ones among them
    cluster  GET and SET on a Redis Cluster, next to a client that knows clusters
    pairs    a lock for each client, next to the locks of other libraries
    hot      one lock for 100 clients, next to the locks of other libraries
    waiting  clients that wait for held locks: their costs, and the time to a freed lock

With several --proxy, each suite compares the proxies with each other, too, as in
--proxy before=./old --proxy after=./new.`

var flagHelp = kong.Vars{
	"suites": strings.Join(suiteNames(), ","),
	"proxy":  "A built lockproxy (default: lockbench builds the source in which it runs).",
	"args": "Further flags for lockproxy, separated by spaces, " +
		"as in --proxy-args=--upstream-mode=dedicated.",
	"quick": "Measure with fewer rounds and clients, and in shorter runs.",
	"output": "Write the report to this file, too, and all figures of all rounds to a CSV file " +
		"next to it.",
	"page": "Write the page docs/bench.md to this file, with the figures of this run of all suites.",
}

// limit bounds the time of a report.
const limit = 60 * time.Minute

func main() {
	os.Setenv("PATH", os.Getenv("PATH")+":/usr/sbin:/usr/local/sbin") // of HAProxy and twemproxy
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "lockbench: %v\n", err)
		os.Exit(1)
	}
}

// run is main without the process. When it returns, all servers have ended.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
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
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the run took over %v", limit))
	defer cancel()
	return report(ctx, &f, suitesNamed(f.Suites, f.Quick), stdout, stderr)
}
