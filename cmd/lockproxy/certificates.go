package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"lockproxy/internal/upstream"
)

// certificates are the TLS files, for clients and for the upstream.
type certificates struct {
	opts     *options
	upstream *upstream.Upstream // nil if it is plain
	base     *tls.Config        // the upstream's, as its URL says
	clients  atomic.Pointer[tls.Config]
	notNow   []string // what the last load has found of certificates that are not valid now
}

// loadCertificates reads the files for the first time.
func loadCertificates(opts *options) (*certificates, error) {
	c := &certificates{opts: opts}
	if opts.upstream != nil && opts.upstream.TLS() != nil {
		c.upstream, c.base = opts.upstream, opts.upstream.TLS()
	}
	return c, c.load(opts)
}

// used reports whether there is TLS at all.
func (c *certificates) used() bool { return c.opts.TLSCert != "" || c.upstream != nil }

// load reads the files that opts name, and puts them into use for new connections if all of them
// are good.
func (c *certificates) load(opts *options) error {
	clients, err := forClients(opts)
	if err != nil {
		return err
	}
	upstream, err := asClient(c.base, "upstream-tls", opts.UpstreamServerName, opts.UpstreamCert,
		opts.UpstreamKey, opts.UpstreamCA)
	if err != nil {
		return err
	}
	c.notNow = append(notValid("--tls-cert", opts.TLSCert, clients),
		notValid("--upstream-tls-cert", opts.UpstreamCert, upstream)...)
	c.clients.Store(clients)
	if c.upstream != nil {
		c.upstream.SetTLS(upstream)
	}
	return nil
}

// serving is what clients are served with, always as of the last load; nil is plain text.
func (c *certificates) serving() *tls.Config {
	if c.opts.TLSCert == "" {
		return nil
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return c.clients.Load(), nil
		},
	}
}

func forClients(opts *options) (*tls.Config, error) {
	if opts.TLSCert == "" {
		return nil, nil
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, DynamicRecordSizingDisabled: true}
	var err error
	if cfg.Certificates, err = pair("tls", opts.TLSCert, opts.TLSKey); err != nil {
		return nil, err
	}
	if opts.TLSClientCA != "" {
		cfg.ClientAuth = tls.RequireAndVerifyClientCert
		cfg.ClientCAs, err = authorities("tls-client-ca", opts.TLSClientCA)
	}
	return cfg, err
}

// asClient is base, that of a URL, with the values of flags that begin with --prefix. nil is plain
// text.
func asClient(base *tls.Config, prefix, serverName, cert, key, ca string) (*tls.Config, error) {
	if base == nil {
		return nil, nil
	}
	cfg := base.Clone()
	if serverName != "" {
		cfg.ServerName = serverName
	}
	var err error
	if cert != "" {
		if cfg.Certificates, err = pair(prefix, cert, key); err != nil {
			return nil, err
		}
	}
	if ca != "" {
		cfg.RootCAs, err = authorities(prefix+"-ca", ca)
	}
	return cfg, err
}

// notValid says so if a certificate has expired, or is not valid yet: it is of use to nobody who
// checks it.
func notValid(flag, file string, cfg *tls.Config) []string {
	if cfg == nil || len(cfg.Certificates) == 0 || cfg.Certificates[0].Leaf == nil {
		return nil
	}
	leaf, now := cfg.Certificates[0].Leaf, time.Now()
	if !now.Before(leaf.NotBefore) && !now.After(leaf.NotAfter) {
		return nil
	}
	return []string{fmt.Sprintf("%s %s is valid from %s to %s, and not now: the other side may "+
		"refuse it; renew it, or set this machine's clock", flag, file,
		leaf.NotBefore.UTC().Format(time.RFC3339), leaf.NotAfter.UTC().Format(time.RFC3339))}
}

// warn logs what is wrong with the files that are in use.
func (c *certificates) warn(log hclog.Logger) {
	for _, text := range c.notNow {
		log.Warn("a certificate is not valid now: " + text)
	}
}

func pair(flags, certFile, keyFile string) ([]tls.Certificate, error) {
	cert, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("--%s-cert %s with --%s-key %s: %w", flags, certFile, flags, keyFile,
			err)
	}
	return []tls.Certificate{cert}, nil
}

func authorities(flag, file string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(file)
	pool := x509.NewCertPool()
	if err == nil && !pool.AppendCertsFromPEM(pem) {
		err = errors.New("the file holds no certificate: want PEM")
	}
	if err != nil {
		return nil, fmt.Errorf("--%s %s: %w", flag, file, err)
	}
	return pool, nil
}
