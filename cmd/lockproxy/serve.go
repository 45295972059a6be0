package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/redis/go-redis/v9"

	"lockproxy/internal/upstream"
	"lockproxy/proxy"
)

// serveCommand is lockproxy without a subcommand, or by name.
type serveCommand struct {
	options

	args []string // the command line, to be read again on SIGHUP
}

func (c *serveCommand) execute(_, stderr io.Writer) int {
	queue := newLogQueue(stderr)
	defer queue.close()
	log := newLogger(&c.options, queue)
	queue.told = func(lost int) { log.Warn(lostLines, "lines", lost) }
	redis.SetLogger(redisLog{log.Named("go-redis")})
	if err := serve(c, log); err != nil {
		log.Error("stopped", "error", err)
		return exitFailure
	}
	return 0
}

// serve runs the proxy until a signal ends it.
func serve(cmd *serveCommand, log hclog.Logger) error {
	opts := &cmd.options
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)

	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)

	certs, err := loadCertificates(opts)
	if err != nil {
		return fmt.Errorf("cannot use the TLS files: %w", err)
	}
	certs.warn(log)
	reloader := &reloader{args: cmd.args, current: opts, certs: certs, log: log}
	if opts.upstream != nil {
		opts.upstream.OnRefused(reloader.renew)
	}
	old, err := findPredecessor(opts.Handover)
	if err != nil {
		return err
	}
	defer old.close() // harmless after ready
	ln, err := opts.listen(old)
	if err != nil {
		return err
	}
	if opts.upstream == nil && !opts.Embedded && !isLoopback(ln.Addr()) { // systemd's
		ln.Close()
		return fmt.Errorf("%s is open to other machines: name a Redis with --upstream, or serve "+
			"the in-memory store with --embedded", ln.Addr())
	}
	if opts.isItself(bound(ln.Addr())) {
		ln.Close()
		return errItself
	}
	warnOpen(opts, ln.Addr(), log)
	if old != nil && !opts.HandoverUnchecked {
		if err := opts.awaitUpstream(); err != nil {
			ln.Close()
			return fmt.Errorf("the running process keeps its clients, since the upstream does "+
				"not serve this one: %w; --handover-unchecked takes over all the same", err)
		}
	}
	upstream := opts.upstream
	if upstream == nil {
		store, err := startEmbedded()
		if err != nil {
			ln.Close()
			return fmt.Errorf("cannot start the embedded store: %w", err)
		}
		defer store.stop()
		upstream = store.upstream
		log.Warn("the embedded in-memory store is for trying out, and keeps and shares nothing: " +
			"name a Redis with --upstream redis://host:port")
	}
	cfg := opts.serverConfig(upstream, log)
	cfg.TLS = certs.serving()
	cfg.Host, _ = os.Hostname() // it can do without
	cfg.Embedded = opts.upstream == nil
	cfg.Public = !isLoopback(ln.Addr()) && opts.TLSClientCA == ""
	watched, err := opts.AdminOptions.prepare(&cfg, old)
	if err != nil {
		ln.Close()
		return err
	}
	server := proxy.New(cfg)
	stopWatching := sync.OnceFunc(watched.start(server, proxyName(opts.shown(ln.Addr())), log))
	defer stopWatching()
	upgrade, err := newUpgrader(opts, ln, watched.ln, log)
	if err != nil {
		server.Close()
		ln.Close()
		return err
	}
	defer upgrade.close()

	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }() // ends by Shutdown or Close; waited for below
	log.Info("serving", "listen", opts.shown(ln.Addr()), "upstream", describe(opts.upstream),
		"version", version)
	if opts.upstream != nil {
		checking, stopChecks := context.WithCancel(context.Background())
		var checks sync.WaitGroup
		// ends when it has looked, or with serve, which waits for it
		checks.Go(func() { server.CheckUpstream(checking) })
		defer checks.Wait()
		defer stopChecks()
	}
	if shared, ok := ln.(*socket); ok {
		shared.handed.Store(false)
	}
	if err := old.ready(); err != nil {
		log.Warn("cannot tell the process that this one replaces to end: end it by hand",
			"error", err)
	}
	notify(stateReady, log)
	watching, stopWatchdog := context.WithCancel(context.Background())
	var watchdogs sync.WaitGroup
	watchdogs.Go(func() { watchdog(watching, server.Alive, log) }) // ends with serve, which waits for it
	defer watchdogs.Wait()
	defer stopWatchdog()
	reloader.server = server
	for serving := true; serving; {
		select {
		case err := <-served:
			server.Close()
			return fmt.Errorf("accepting on %s ended: %w", opts.Listen, err)
		case <-hangups:
			reloader.reload()
		case <-upgrade.done:
			stopWatching() // from now on the successor answers there
			serving = false
		case sig := <-signals:
			log.Info("the proxy is stopping, and running commands can finish: a second signal "+
				"ends it at once",
				"signal", sig.String(), "within", opts.ShutdownTimeout.String())
			leave(server, opts, log, signals)
			serving = false
		}
	}
	notify(stateStopping, log)
	shutdown(server, opts, log, signals)
	return <-served
}

// leave serves clients for a while longer, so that balancers learn that this proxy is about to end.
func leave(server *proxy.Server, opts *options, log hclog.Logger, signals chan os.Signal) {
	server.SetUnready()
	if opts.ShutdownDelay == 0 {
		return
	}
	log.Info("/readyz says no from now on, and clients are served as before for --shutdown-delay",
		"for",
		opts.ShutdownDelay.String())
	delay := time.NewTimer(opts.ShutdownDelay)
	defer delay.Stop()
	select {
	case <-delay.C:
	case sig := <-signals:
		select {
		case signals <- sig: // it is shutdown's
		default: // more came meanwhile: one is there for shutdown
		}
	}
}

// warnOpen warns if clients act as the upstream's user without knowing its password.
func warnOpen(opts *options, addr net.Addr, log hclog.Logger) {
	if opts.upstream == nil || !opts.upstream.Initial.LoggedIn || opts.TLSClientCA != "" ||
		isLoopback(addr) {
		return
	}
	log.Warn("every client that can connect is served with the credentials in --upstream: leave "+
		"them out so that clients send their own, "+
		"or let in only those with a certificate by --tls-client-ca", "listen", addr.String())
}

// proxyName names the proxy for people: by its machine and the address that it listens on.
func proxyName(listen string) string {
	if host, err := os.Hostname(); err == nil {
		return host + ", " + listen
	}
	return listen
}

// shown is the address that clients connect to, as they would write it.
func (o *options) shown(addr net.Addr) string {
	if o.TLSCert != "" && addr.Network() != "unix" {
		return "tls://" + addr.String()
	}
	return bound(addr)
}

// bound is the address that a listener has, as --listen would say it.
func bound(addr net.Addr) string {
	if addr.Network() == "unix" {
		return "unix://" + addr.String()
	}
	return addr.String()
}

func shutdown(server *proxy.Server, opts *options, log hclog.Logger, signals <-chan os.Signal) {
	ctx, cancel := context.WithTimeout(context.Background(), opts.ShutdownTimeout)
	defer cancel()
	finished := make(chan error, 1)
	go func() { finished <- server.Shutdown(ctx) }() // ends by ctx at the latest; waited for below
	select {
	case err := <-finished:
		if err != nil {
			log.Warn("clients were disconnected before they had finished their commands or "+
				"transactions, or released their locks", "after", opts.ShutdownTimeout.String())
		}
	case <-signals:
		log.Warn("a second signal has come: the proxy ends at once")
		server.Close()
		<-finished
	}
	log.Info("stopped")
}

func describe(u *upstream.Upstream) string {
	if u == nil {
		return "embedded"
	}
	return u.String()
}

// withoutAddr drops the address that a net.OpError repeats.
func withoutAddr(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}
