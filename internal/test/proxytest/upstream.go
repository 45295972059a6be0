package proxytest

import (
	"crypto/tls"

	"lockproxy/proxy"
)

// UpstreamTLS is what --upstream-tls-ca and its like make of the
// upstream's configuration.
func UpstreamTLS(change func(*tls.Config)) func(*proxy.Config) {
	return func(cfg *proxy.Config) {
		tlsConfig := cfg.Upstream.TLS().Clone()
		change(tlsConfig)
		cfg.Upstream.SetTLS(tlsConfig)
	}
}
