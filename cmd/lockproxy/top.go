package main

import (
	"context"
	"errors"
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
	"lockproxy/passthrough"
	"lockproxy/top"
)

// topCommand is lockproxy top: the locks that are held, in a terminal.
type topCommand struct {
	Filter   string  `short:"f" env:"-" placeholder:"TEXT" help:"Show only locks with this in their key, owner or client."`
	Sort     string  `env:"-" enum:"key,owner,client,held,remaining,waiters" default:"key" placeholder:"COLUMN" help:"key, owner, client, held, remaining or waiters (default ${default})."`
	Reverse  bool    `short:"r" env:"-" help:"The largest first."`
	Rows     int     `short:"n" env:"-" placeholder:"N" help:"Show no more than this many (default: all)."`
	Interval seconds `short:"d" env:"-" default:"1" placeholder:"SECONDS" help:"Look again after this long (default ${default})."`
	Once     bool    `short:"1" env:"-" help:"Print the locks once, as is done in any case if the output is no terminal."`

	URL           string `name:"url" env:"LOCKPROXY_URL" default:"redis://127.0.0.1:6380" placeholder:"URL" help:"The lockproxy: redis://[user:pass@]host:port[/db], rediss:// for TLS, or unix://[user:pass@]/path[?db=n] (default ${default})."`
	TLSCA         string `name:"tls-ca" env:"-" placeholder:"FILE" help:"The authorities that may have signed the proxy's certificate, PEM (default: the system's)."`
	TLSCert       string `name:"tls-cert" env:"-" placeholder:"FILE" help:"The certificate to show to the proxy, PEM."`
	TLSKey        string `name:"tls-key" env:"-" placeholder:"FILE" help:"The key of --tls-cert, PEM."`
	TLSServerName string `name:"tls-server-name" env:"-" placeholder:"NAME" help:"The name that the proxy's certificate must have (default: the URL's host)."`

	proxy *passthrough.Upstream
}

// Help is printed below the command's help line.
func (c *topCommand) Help() string {
	return "Asks by LOCKSCAN and LOCKINFO, so it needs no more than a connection as any client has, and shows what its user may see, in the URL's database. " +
		"Keys: q quits, / filters, s sorts by the next column, r reverses, space pauses, arrows scroll."
}

func (c *topCommand) check() (err error) {
	switch {
	case c.Interval < seconds(100*time.Millisecond):
		return errors.New("--interval: want at least 0.1 seconds")
	case c.Rows < 0:
		return fmt.Errorf("--rows is %d: want 0 or more", c.Rows)
	case (c.TLSCert == "") != (c.TLSKey == ""):
		return errors.New("--tls-cert and --tls-key belong together: give both")
	}
	if c.proxy, err = passthrough.ParseURL(c.URL); err != nil {
		return fmt.Errorf("--url: %w", err)
	}
	if c.proxy.TLS() == nil && (c.TLSCA != "" || c.TLSCert != "" || c.TLSServerName != "") {
		return errors.New("--tls-ca, --tls-cert and --tls-server-name are for TLS: write --url as rediss://")
	}
	return nil
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
	if err := c.secure(); err != nil {
		return err
	}
	client := c.proxy.Client(c.proxy.Initial)
	defer client.Close()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o := top.Options{
		Client: client, Addr: c.proxy.String(), DB: c.proxy.Initial.DB, Interval: time.Duration(c.Interval),
		Query: survey.Query{Filter: c.Filter, Sort: survey.Column(c.Sort), Down: c.Reverse, Limit: c.Rows},
	}
	if file, ok := stdout.(*os.File); c.Once || !ok || !isatty.IsTerminal(file.Fd()) {
		return top.Snapshot(ctx, o, stdout)
	}
	terminal, err := tcell.NewScreen()
	if err != nil {
		return fmt.Errorf("cannot use this terminal, try --once: %w", err)
	}
	return top.Watch(ctx, o, terminal)
}

// secure reads the TLS files.
func (c *topCommand) secure() (err error) {
	if c.proxy.TLS() == nil {
		return nil
	}
	cfg := c.proxy.TLS().Clone()
	if c.TLSServerName != "" {
		cfg.ServerName = c.TLSServerName
	}
	if c.TLSCert != "" {
		if cfg.Certificates, err = pair("tls", c.TLSCert, c.TLSKey); err != nil {
			return err
		}
	}
	if c.TLSCA != "" {
		if cfg.RootCAs, err = authorities("tls-ca", c.TLSCA); err != nil {
			return err
		}
	}
	c.proxy.SetTLS(cfg)
	return nil
}
