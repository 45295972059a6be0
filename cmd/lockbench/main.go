// Command lockbench measures lockproxy next to what it is compared with, on this machine, in one
// run: it starts every server that it needs on free loopback ports, drives them in turn, several
// rounds, and writes every figure to a CSV file and their medians as Markdown.
//
// A suite (suite.go) has cases: a workload by one way to do it. In every round each workload is run
// by all ways, one right after the other, so that a disturbance from outside meets all of them. A
// case starts from an empty Redis and answers with figures. A list of columns says which of them
// a suite shows, and which way the others are compared with; table.go does the rest.
//
// relay, cluster and parts of idle are driven by redis-benchmark, the rest by a light client
// (client.go), since clients share the machine with what they measure. servers.go starts programs,
// topology.go knows how each is started, redis.go and process.go ask what they have used. page.go
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
	Only      string        `placeholder:"TEXT" help:"Run only workloads with this in their name."`
	Rounds    int           `help:"How often each case is run (default: as the suite needs)."`
	Quick     bool          `short:"q" help:"${quick}"`
	Output    string        `short:"o" placeholder:"FILE.md" help:"${output}"`
	Page      string        `placeholder:"FILE.md" help:"${page}"`
}

// proxyBinary is a lockproxy to measure, and what it is called in the report.
type proxyBinary struct{ name, path string }

func (p *proxyBinary) UnmarshalText(text []byte) error {
	name, path, named := strings.Cut(string(text), "=")
	if !named {
		name, path = viaLockproxy, string(text)
	}
	*p = proxyBinary{name, path}
	return nil
}

const description = `Measures lockproxy next to what it is compared with.

    relay    GET and SET by redis-benchmark, directly and through lockproxy, HAProxy and twemproxy
    visits   clients that connect, GET and close, with and without a login, and Redis with TLS
    idle     memory of 10,000 idle connections, and what active ones among them notice
    cluster  GET and SET on a Redis Cluster, next to a client that knows clusters
    pairs    a lock each, that nobody else wants, next to the locks of other libraries
    hot      one lock that 100 clients want, next to the locks of other libraries
    waiting  clients that wait for held locks: what they cost, and how soon they are served

With several --proxy each suite compares them with each other, too: --proxy before=./old
--proxy after=./new.`

var flagHelp = kong.Vars{
	"suites": strings.Join(suiteNames(), ","),
	"proxy":  "A built lockproxy (default: built from the source that lockbench is run in).",
	"args": "Further flags for lockproxy, separated by spaces, " +
		"as in --proxy-args=--upstream-mode=dedicated.",
	"quick": "Fewer rounds and clients, shorter runs: to see whether a change does anything.",
	"output": "Write the report to this file too, and every figure of every round next to it, " +
		"as CSV.",
	"page": "Write the page docs/bench.md to this file, with the figures of this run of all suites.",
}

// limit ends a report that takes longer.
const limit = 60 * time.Minute

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
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it took more than %v", limit))
	defer cancel()
	return report(ctx, &f, suitesNamed(f.Suites, f.Quick), stdout, stderr)
}
