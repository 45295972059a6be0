package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

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

// nonsense is no request. A proxy says so itself, whatever its Redis does.
const nonsense = "*x\r\n"

// errSilent is how a proxy fails that can be connected to.
var errSilent = errors.New("does not answer")

// explain adds to a failure to connect what is to be done about it; known says that it was found
// out. A context with a deadline bounds all of it.
func (t *target) explain(ctx context.Context, failed error) (err error, known bool) {
	silent := errors.Is(failed, os.ErrDeadlineExceeded) ||
		errors.Is(failed, context.DeadlineExceeded)
	if silent && t.answersNonsense(ctx) {
		return fmt.Errorf("%s answers, but the Redis behind it %w", t.proxy.Addr, errSilent), true
	}
	err = t.proxy.Explain(ctx, failed, "--tls")
	if known = err.Error() != failed.Error(); silent && !known {
		var upstreams *upstream.Error
		if errors.As(failed, &upstreams) {
			failed = upstreams.Err
		}
		return fmt.Errorf("%s %w: the process hangs, or is no lockproxy (%v)", t.proxy.Addr,
			errSilent, failed), false
	}
	return err, known
}

// answersNonsense reports whether the proxy answers by itself. It takes half of the time that ctx
// gives.
func (t *target) answersNonsense(ctx context.Context) bool {
	if until, ok := ctx.Deadline(); ok {
		half, cancel := context.WithTimeout(ctx, time.Until(until)/2)
		defer cancel()
		ctx = half
	}
	dial := new(net.Dialer).DialContext
	if cfg := t.proxy.TLS(); cfg != nil {
		dial = (&tls.Dialer{Config: cfg}).DialContext
	}
	nc, err := dial(ctx, t.proxy.Network, t.proxy.Addr)
	if err != nil {
		return false
	}
	defer nc.Close()
	stop := context.AfterFunc(ctx, func() { nc.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := io.WriteString(nc, nonsense); err != nil {
		return false
	}
	var first [1]byte
	_, err = io.ReadFull(nc, first[:])
	return err == nil && first[0] == '-'
}
