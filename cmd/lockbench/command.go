package main

import (
	"fmt"
	"time"
)

// common is the flags of all reports.
type common struct {
	Output    string        `short:"o" placeholder:"FILE" help:"Write the report to a file too, and its figures beside it."`
	Quick     bool          `short:"q" help:"Fewer rounds, shorter runs, fewer cases: to see whether a change does anything."`
	Proxy     string        `placeholder:"PATH" help:"A built lockproxy (default: built from the source that lockbench is run in)."`
	ProxyArgs string        `env:"LOCKBENCH_PROXY_ARGS" placeholder:"FLAGS" help:"Further flags for lockproxy, separated by spaces, as in --proxy-args=--upstream-mode=dedicated; also in the environment: $$${env}."`
	Rounds    int           `placeholder:"N" help:"Rounds of every workload (default: each report's own number, 3 to 7)."`
	Limit     time.Duration `default:"40m" help:"End without a report after this time (default ${default})."`
}

// Validate is called by kong.
func (c *common) Validate() error {
	if c.Rounds < 0 || c.Limit <= 0 {
		return fmt.Errorf("--rounds and --limit must be positive")
	}
	return nil
}

func (c *common) flags() *common { return c }

// command is a subcommand: what it writes follows from its flags.
type command interface {
	flags() *common
	documents() []*document
}

type allCmd struct{ common }

func (c *allCmd) documents() []*document {
	pairs := pairsPart(c.Quick)
	return []*document{
		benchDocument(relayPart(c.Quick), latencyPart(c.Quick), pairs, idlePart(c.Quick), scalePart(c.Quick), clusterPart(c.Quick), profilePart(c.Quick)),
		{name: "bench-locks", head: locksHead, parts: []*part{locksPart(c.Quick), pairs}},
	}
}

type relayCmd struct{ common }

func (c *relayCmd) documents() []*document { return []*document{benchDocument(relayPart(c.Quick))} }

type latencyCmd struct{ common }

func (c *latencyCmd) documents() []*document { return []*document{benchDocument(latencyPart(c.Quick))} }

type pairsCmd struct{ common }

func (c *pairsCmd) documents() []*document { return []*document{benchDocument(pairsPart(c.Quick))} }

type idleCmd struct{ common }

func (c *idleCmd) documents() []*document { return []*document{benchDocument(idlePart(c.Quick))} }

type scaleCmd struct{ common }

func (c *scaleCmd) documents() []*document { return []*document{benchDocument(scalePart(c.Quick))} }

type clusterCmd struct{ common }

func (c *clusterCmd) documents() []*document { return []*document{benchDocument(clusterPart(c.Quick))} }

type profileCmd struct{ common }

func (c *profileCmd) documents() []*document { return []*document{benchDocument(profilePart(c.Quick))} }
