//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"lockproxy/internal/test/faults/check"
	"lockproxy/internal/test/faults/client"
	"lockproxy/internal/test/faults/history"
	"lockproxy/internal/test/faults/soak"
)

// soakCommands are the commands of locktools soak.
type soakCommands struct {
	Run    runCommand    `cmd:"" default:"withargs" help:"Run rounds of faults."`
	Check  checkCommand  `cmd:"" help:"Judge histories that earlier runs have written."`
	Client clientCommand `cmd:"" hidden:"" help:"Run one client of a round."`
}

// errViolations means that the service has broken a promise.
var errViolations = errors.New("lockproxy has broken a promise")

// soakMain causes random faults of machines, networks and operators, and checks the promises of
// docs/guarantees.md. A seed determines all faults.
func soakMain(args []string) int {
	var c soakCommands
	parser := kong.Must(&c, kong.Name("locktools soak"),
		kong.Description("Causes random faults, and checks the histories of the clients of lockproxy."))
	parsed, err := parser.Parse(args)
	parser.FatalIfErrorf(err)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	parsed.BindTo(ctx, (*context.Context)(nil))
	if err := parsed.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		return 1
	}
	return 0
}

// clientCommand is a client process. It writes its history to standard output.
type clientCommand struct {
	ID     int      `required:""`
	Seed   uint64   `required:""`
	Keys   []string `required:""`
	Target []string `required:"" help:"A proxy's number, =, and its address."`
}

// Run competes for locks until the process is told to end.
func (c *clientCommand) Run(ctx context.Context) error {
	l := &client.Locker{ID: c.ID, Keys: c.Keys, Random: rand.New(rand.NewPCG(c.Seed, 0)),
		Notes: history.NewStream(os.Stdout), Think: 60 * time.Millisecond,
		Shortest: 300 * time.Millisecond, Longest: time.Second, Sessions: 30,
		Owners: soak.DefaultLoad().Owners}
	for _, text := range c.Target {
		number, addr, _ := strings.Cut(text, "=")
		n, err := strconv.Atoi(number)
		if err != nil {
			return fmt.Errorf("target %q: want a number, =, and an address", text)
		}
		l.Targets = append(l.Targets, client.Target{Proxy: n, Addr: addr})
	}
	l.Run(ctx)
	return nil
}

// checkCommand judges histories of earlier runs.
type checkCommand struct {
	History []string `arg:"" type:"existingfile" help:"A history that a run has written."`
}

// Run judges each of them.
func (c *checkCommand) Run() (err error) {
	for _, path := range c.History {
		f, failed := os.Open(path)
		if failed != nil {
			return failed
		}
		h, failed := history.Read(f)
		f.Close()
		if failed != nil {
			return fmt.Errorf("%s: %w", path, failed)
		}
		r := soak.Result{History: h, Report: check.Check(h, check.DefaultBounds())}
		fmt.Printf("%s: %d operations, %d violations, %d locks undecided\n%s", path, len(h.Ops),
			len(r.Report.Violations), len(r.Report.Undecided), r.Describe())
		if len(r.Report.Violations) > 0 {
			err = errViolations
		}
	}
	return err
}
