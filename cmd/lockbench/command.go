package main

import (
	"time"

	"github.com/alecthomas/kong"
)

// flags is the command line.
type flags struct {
	Report    string `arg:"" enum:"${reports}" help:"What to measure."`
	Output    string `short:"o" placeholder:"FILE" help:"${output}"`
	Quick     bool   `short:"q" help:"${quick}"`
	Proxy     string `placeholder:"PATH" help:"${proxy}"`
	ProxyArgs string `env:"LOCKBENCH_PROXY_ARGS" placeholder:"FLAGS" help:"${args}"`
}

var flagHelp = kong.Vars{
	"reports": "all,relay,visits,latency,pairs,idle,scale,cluster,profile,locks,once,order,park," +
		"sizing",
	"output": "Write the report to a file too, and its figures next to it.",
	"quick":  "Fewer rounds, shorter runs, fewer cases: to see whether a change does anything.",
	"proxy":  "A built lockproxy (default: built from the source that lockbench is run in).",
	"args": "Further flags for lockproxy, separated by spaces, " +
		"as in --proxy-args=--upstream-mode=dedicated.",
}

// description says what the reports are.
const description = `Measures lockproxy next to what it is compared with.

    all      everything below but once, order, park and sizing, in about 20 minutes (with --quick in 4)
    relay    GET and SET by redis-benchmark through lockproxy, HAProxy and twemproxy
    visits   clients that connect, GET and close, with and without a login, and Redis with TLS
    latency  what each proxy adds to the latency of one client, and at half load
    pairs    LOCK and UNLOCK, a key for each client
    idle     memory of 10,000 idle connections, and what active ones among them notice
    scale    throughput and CPU per command with 1 to 5,000 clients
    cluster  GET and SET on a Redis Cluster, next to a client that knows clusters
    profile  what lockproxy does with its processor time in some of these workloads
    locks    LOCK through one and two proxies, next to lock libraries and polling recipes
    once     a missing value that 1,000 clients ask for, and hits, next to locks that poll
    order    which of two close requests of two clients Redis runs first
    park     clients that poll a lock, with and without lockproxy, and with --park
    sizing   what locks, clients and proxies cost, and what that predicts for up to 1,000 shards`

// limit ends a report that takes longer.
const limit = 40 * time.Minute

// documents is the files of the report that is asked for.
func (f *flags) documents() []*document {
	q := f.Quick
	pairs := pairsPart(q)
	switch f.Report {
	case "all":
		return []*document{
			benchDocument(relayPart(q), visitsPart(q), latencyPart(q), pairs, idlePart(q), scalePart(q),
				clusterPart(q), profilePart(q)),
			locksDocument(locksPart(q), pairs),
		}
	case "locks":
		return []*document{locksDocument(locksPart(q), pairs)}
	case "sizing":
		return []*document{sizingDocument(q)}
	case "once":
		return []*document{onceDocument(q)}
	case "park":
		return []*document{parkingDocument(q)}
	case "order":
		return []*document{{name: "bench-order", head: orderHead, goals: true,
			parts: []*part{orderPart(q)}}}
	}
	return []*document{benchDocument(map[string]func(bool) *part{
		"relay": relayPart, "visits": visitsPart, "latency": latencyPart, "pairs": pairsPart, "idle": idlePart,
		"scale": scalePart, "cluster": clusterPart, "profile": profilePart,
	}[f.Report](q))}
}
