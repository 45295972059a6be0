package main

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"

	"lockproxy/internal/upstream"
)

// target is the lockproxy that a command asks as a client: the flags that name it, and how to be
// let in.
type target struct {
	URL           filled `name:"url" env:"LOCKPROXY_URL" placeholder:"URL" help:"The lockproxy: redis://[user:pass@]host:port[/db], rediss:// for TLS, or unix://[user:pass@]/path[?db=n] (default redis://127.0.0.1:6380)."`
	URLFile       filled `name:"url-file" env:"LOCKPROXY_URL_FILE" placeholder:"FILE" help:"A file that holds the URL of --url, such as a mounted secret."`
	TLSCA         string `name:"tls-ca" env:"-" placeholder:"FILE" help:"The authorities that may have signed the proxy's certificate, PEM (default: the system's)."`
	TLSCert       string `name:"tls-cert" env:"-" placeholder:"FILE" help:"The certificate to show to the proxy, PEM."`
	TLSKey        string `name:"tls-key" env:"-" placeholder:"FILE" help:"The key of --tls-cert, PEM."`
	TLSServerName string `name:"tls-server-name" env:"-" placeholder:"NAME" help:"The name that the proxy's certificate must have (default: the URL's host)."`

	proxy *upstream.Upstream
}

// parse reads the URL.
func (t *target) parse() (err error) {
	if (t.TLSCert == "") != (t.TLSKey == "") {
		return errors.New("--tls-cert and --tls-key belong together: give both")
	}
	if err := readSecret("url", (*string)(&t.URL), t.URLFile); err != nil {
		return err
	}
	if t.proxy, err = upstream.Parse(cmp.Or(string(t.URL), "redis://127.0.0.1:6380")); err != nil {
		return fmt.Errorf("--url: %w", err)
	}
	if t.proxy.TLS() == nil && (t.TLSCA != "" || t.TLSCert != "" || t.TLSServerName != "") {
		return errors.New("--tls-ca, --tls-cert and --tls-server-name are for TLS: write --url " +
			"as rediss://")
	}
	return nil
}

// tls reads the files of TLS; nil is plain text.
func (t *target) tls() (cfg *tls.Config, err error) {
	if t.proxy.TLS() == nil {
		return nil, nil
	}
	cfg = t.proxy.TLS().Clone()
	if t.TLSServerName != "" {
		cfg.ServerName = t.TLSServerName
	}
	if t.TLSCert != "" {
		if cfg.Certificates, err = pair("tls", t.TLSCert, t.TLSKey); err != nil {
			return nil, err
		}
	}
	if t.TLSCA != "" {
		if cfg.RootCAs, err = authorities("tls-ca", t.TLSCA); err != nil {
			return nil, err
		}
	}
	return cfg, nil
}
