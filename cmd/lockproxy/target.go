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
	URL           string `name:"url" env:"LOCKPROXY_URL" placeholder:"URL"`
	URLFile       string `name:"url-file" env:"LOCKPROXY_URL_FILE" placeholder:"FILE"`
	TLSCA         string `name:"tls-ca" env:"-" placeholder:"FILE"`
	TLSCert       string `name:"tls-cert" env:"-" placeholder:"FILE" help:"The certificate to show to the proxy, PEM."`
	TLSKey        string `name:"tls-key" env:"-" placeholder:"FILE" help:"The key of --tls-cert, PEM."`
	TLSServerName string `name:"tls-server-name" env:"-" placeholder:"NAME"`

	proxy *upstream.Upstream
}

// parse reads the URL.
func (t *target) parse() (err error) {
	if (t.TLSCert == "") != (t.TLSKey == "") {
		return errors.New("--tls-cert and --tls-key belong together: give both")
	}
	if err := readSecret("url", &t.URL, t.URLFile); err != nil {
		return err
	}
	if t.proxy, err = upstream.Parse(cmp.Or(t.URL, "redis://127.0.0.1:6380")); err != nil {
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
