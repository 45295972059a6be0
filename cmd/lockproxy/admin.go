package main

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/hashicorp/go-hclog"

	"lockproxy/internal/admin"
	"lockproxy/proxy"
)

// AdminOptions are the flags by which the proxy lets itself be watched.
type AdminOptions struct {
	Admin          string        `group:"Watching" placeholder:"ADDRESS" help:"Serve /healthz, /readyz, /metrics and a live page at this host:port, with plain HTTP. Who reaches it sees the names of locks and their holders (default: not at all)."`
	AdminToken     string        `group:"Watching" placeholder:"TOKEN" help:"Who logs in on the live page with this may release locks there; better given as LOCKPROXY_ADMIN_TOKEN. At least 16 characters (default: nobody may)."`
	AdminTokenFile filled        `group:"Watching" placeholder:"FILE" help:"A file that holds --admin-token, such as a mounted secret."`
	AdminPprof     bool          `advanced:"" group:"Watching" help:"Serve Go's profiles at --admin, below /debug/pprof/."`
	LockHistory    size          `advanced:"" group:"Watching" default:"16mb" placeholder:"SIZE" help:"Memory for what happened to locks within the last hour; 0 keeps nothing (default ${default})."`
	SlowWait       time.Duration `group:"Watching" default:"0" placeholder:"DURATION" help:"Log a line when a client has waited so long for a lock, with its holder; at most ten a second (default: none)."`
}

// minAdminToken is how long a token must be not to be guessed.
const minAdminToken = 16

func (o *AdminOptions) check() error {
	switch {
	case o.LockHistory < 0 || o.LockHistory > 1<<40:
		return fmt.Errorf("--lock-history is %d: want 0 to 1tb", o.LockHistory)
	case o.SlowWait < 0:
		return fmt.Errorf("--slow-wait is %v: want a time, or 0 for none", o.SlowWait)
	case o.Admin == "" && (o.AdminToken != "" || o.AdminPprof):
		return errors.New("--admin-token and --admin-pprof need --admin")
	case o.AdminToken != "" && len(o.AdminToken) < minAdminToken:
		return fmt.Errorf("--admin-token is too short: want at least %d characters, for example "+
			"from openssl rand -hex 16", minAdminToken)
	}
	return nil
}

// watching is the admin server to be, while the proxy isn't there yet.
type watching struct {
	options *AdminOptions
	metrics *admin.Metrics
	ln      net.Listener // nil if it isn't wanted
}

// prepare opens the admin server's listener, if one is wanted, and lets the proxy that cfg is for
// tell it of what it does.
func (o *AdminOptions) prepare(cfg *proxy.Config, old *parent) (*watching, error) {
	cfg.Version, cfg.Locks.SlowWait = version, o.SlowWait
	cfg.Locks.History = int64(o.LockHistory)
	w := &watching{options: o}
	if o.Admin == "" {
		return w, nil
	}
	ln, err := old.listener("admin", o.Admin)
	if err == nil && ln == nil {
		ln, err = net.Listen("tcp", o.Admin)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s, choose another --admin: %w", o.Admin,
			withoutAddr(err))
	}
	w.ln, w.metrics = ln, admin.NewMetrics(version)
	cfg.Observer = w.metrics
	return w, nil
}

// start serves until stop is called, which returns when all has ended. It goes on while the proxy
// shuts down, so that /readyz tells of it.
func (w *watching) start(server *proxy.Server, log hclog.Logger) (stop func()) {
	if w.ln == nil {
		return func() {}
	}
	pages := admin.New(admin.Config{
		Proxy: server, Metrics: w.metrics, Token: w.options.AdminToken, Pprof: w.options.AdminPprof,
		Logger: log.Named("admin"),
	})
	if !isLoopback(w.ln.Addr()) {
		log.Warn("everybody who reaches the admin address sees the names of locks and their "+
			"holders: let in only those you mean to", "admin", w.ln.Addr().String())
	}
	log.Info("admin pages", "admin", "http://"+w.ln.Addr().String()+"/", "can_release_locks",
		w.options.AdminToken != "")
	ended := make(chan struct{})
	go func() { // ends by Close; stop waits for it
		defer close(ended)
		if err := pages.Serve(w.ln); err != nil {
			log.Error("the admin pages ended; the proxy goes on", "admin", w.options.Admin, "error",
				err)
		}
	}()
	return func() {
		pages.Close()
		<-ended
	}
}
