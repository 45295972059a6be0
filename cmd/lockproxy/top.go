package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/gdamore/tcell/v2"
	"github.com/hashicorp/go-hclog"
	"github.com/mattn/go-isatty"
	"github.com/redis/go-redis/v9"

	"lockproxy/internal/survey"
	"lockproxy/internal/top"
)

// topCommand is lockproxy top: the locks that are held, in a terminal.
type topCommand struct {
	Filter   string  `short:"f" env:"-" placeholder:"TEXT"`
	Sort     string  `env:"-" enum:"key,owner,client,held,remaining,waiters" default:"waiters" placeholder:"COLUMN"`
	Reverse  bool    `short:"r" env:"-"`
	Rows     int     `short:"n" env:"-" range:"0 to 1000000"`
	Interval seconds `short:"d" env:"-" default:"1" range:"0.1 to 3600"`
	Once     bool    `short:"1" env:"-"`

	target
}

// Help is printed below the command's help line.
func (c *topCommand) Help() string {
	return "It is a client like any other: it shows what its user can see, in the URL's database. " +
		"Keys: q quits, / filters, s sorts by the next column, r reverses, space pauses, arrows " +
		"scroll, Enter shows one lock, Tab shows what locks cost (g groups keys of one shape), " +
		"then what happened to them."
}

func (c *topCommand) check() error {
	return c.parse()
}

func (c *topCommand) execute(stdout, stderr io.Writer) int {
	redis.SetLogger(redisLog{hclog.NewNullLogger()}) // what fails is shown in its place
	if err := c.show(stdout); err != nil {
		fmt.Fprintf(stderr, "lockproxy top: %v\n", err)
		return exitFailure
	}
	return 0
}

func (c *topCommand) show(stdout io.Writer) error {
	files, err := c.tls()
	if err != nil {
		return err
	}
	c.proxy.SetTLS(files)
	client := c.proxy.Client(c.proxy.Initial)
	defer client.Close()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o := top.Options{
		Client: client, Addr: c.proxy.String(), DB: c.proxy.Initial.DB,
		Interval: time.Duration(c.Interval),
		Query:    survey.By(survey.Column(c.Sort)),
		Explain: func(ctx context.Context, err error) error {
			err, _ = c.explain(ctx, err)
			return err
		},
	}
	o.Query.Filter, o.Query.Limit = c.Filter, c.Rows
	o.Query.Descending = o.Query.Descending != c.Reverse
	if file, ok := stdout.(*os.File); c.Once || !ok || !isatty.IsTerminal(file.Fd()) {
		return top.Snapshot(ctx, o, stdout)
	}
	terminal, err := tcell.NewScreen()
	if err != nil {
		return fmt.Errorf("cannot use this terminal, try --once: %w", err)
	}
	return top.Watch(ctx, o, terminal)
}
