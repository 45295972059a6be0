package main

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"

	"lockproxy/internal/upstream"
)

// target is the lockproxy that a command connects to: its address and login, and TLS.
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
	if t.proxy.Moves() {
		return errors.New("--url names one lockproxy: write it as redis://, rediss:// or unix://")
	}
	if t.proxy.TLS() == nil && (t.TLSCA != "" || t.TLSCert != "" || t.TLSServerName != "") {
		return errors.New("--tls-ca, --tls-cert and --tls-server-name are for TLS: write --url " +
			"as rediss://")
	}
	return nil
}

// tls reads the files of TLS; nil is plain text.
func (t *target) tls() (*tls.Config, error) {
	return asClient(t.proxy.TLS(), "tls", t.TLSServerName, t.TLSCert, t.TLSKey, t.TLSCA)
}
