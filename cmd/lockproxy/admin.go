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

// AdminOptions are the flags for watching the proxy.
type AdminOptions struct {
	Admin          string        `placeholder:"ADDRESS"`
	AdminToken     string        `placeholder:"TOKEN"`
	AdminTokenFile string        `placeholder:"FILE"`
	AdminPprof     bool          `advanced:""`
	AdminURL       string        `advanced:"" placeholder:"URL"`
	LockHistory    size          `advanced:"" default:"16mb" range:"0 to 1024gb"`
	MetricShapes   int           `advanced:"" default:"20" range:"0 to 1000"`
	SlowWait       time.Duration `default:"0" range:"0s to 24h"`
}

// minAdminToken is the length from which a token cannot be guessed.
const minAdminToken = 16

func (o *AdminOptions) check() error {
	switch {
	case o.Admin != "" && !isListenAddr(o.Admin):
		return fmt.Errorf("--admin %s: want host:port with a port up to 65535, as in "+
			"127.0.0.1:6390", o.Admin)
	case o.Admin == "" && (o.AdminToken != "" || o.AdminPprof || o.AdminURL != ""):
		return errors.New("--admin-token, --admin-pprof and --admin-url need --admin: name its " +
			"address")
	case o.AdminToken != "" && len(o.AdminToken) < minAdminToken:
		return fmt.Errorf("--admin-token is too short: want at least %d characters, for example "+
			"from openssl rand -hex 16", minAdminToken)
	}
	if _, err := admin.ParsePage(o.AdminURL); o.AdminURL != "" && err != nil {
		return fmt.Errorf("--admin-url: %w", err)
	}
	return nil
}

// page is the address of the page for browsers elsewhere, as far as it is known.
func (o *AdminOptions) page(ln net.Addr) string {
	tcp, ok := ln.(*net.TCPAddr)
	if o.AdminURL != "" || !ok || tcp.IP.IsUnspecified() || tcp.IP.IsLoopback() {
		return o.AdminURL
	}
	return "http://" + tcp.String() + "/"
}

// watching is the admin server before there is a proxy.
type watching struct {
	options *AdminOptions
	metrics *admin.Metrics
	ln      net.Listener // nil if it isn't wanted
}

// prepare opens the admin server's listener, if one is wanted, and makes it the Observer in cfg.
func (o *AdminOptions) prepare(cfg *proxy.Config, old *predecessor) (*watching, error) {
	cfg.Version, cfg.Locks.SlowWait = version, o.SlowWait
	cfg.Locks.History = int64(o.LockHistory)
	w := &watching{options: o}
	if o.Admin == "" {
		return w, nil
	}
	cfg.OtherFiles = admin.MaxConns
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
// shuts down, so that /readyz can say so.
func (w *watching) start(server *proxy.Server, name string, log hclog.Logger) (stop func()) {
	if w.ln == nil {
		return func() {}
	}
	pages := admin.New(admin.Config{
		Proxy: server, Metrics: w.metrics, Name: name,
		Page: w.options.page(w.ln.Addr()), Token: w.options.AdminToken, Pprof: w.options.AdminPprof,
		MetricShapes: w.options.MetricShapes, Logger: log.Named("admin"),
	})
	if !isLoopback(w.ln.Addr()) {
		log.Warn("anyone who can reach the admin address sees the names of locks and their "+
			"holders: restrict access to it", "admin", w.ln.Addr().String())
	}
	log.Info("the admin pages are served",
		"admin", "http://"+w.ln.Addr().String()+"/", "can_release_locks",
		w.options.AdminToken != "")
	ended := make(chan struct{})
	go func() { // ends by Close; stop waits for it
		defer close(ended)
		if err := pages.Serve(w.ln); err != nil {
			log.Error("the admin pages are no longer served, but clients are: "+
				"restart the proxy to have the pages back", "admin", w.options.Admin, "error",
				err)
		}
	}()
	return func() {
		pages.Close()
		<-ended
	}
}
