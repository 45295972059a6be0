package proxy

import (
	"testing"
	"time"

	"lockproxy/internal/upstream"
)

// Zero fields are what the comments of Config say.
func TestDefaults(t *testing.T) {
	u, err := upstream.Parse("redis://127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Upstream: u}
	cfg.setDefaults()
	if cfg.UpstreamConns != 1 || cfg.MaxClients != 10000 || cfg.DialTimeout != 5*time.Second ||
		cfg.ClientBuffer != 1<<20 || cfg.MaxUnread != 1<<30 ||
		cfg.HandshakeTimeout != 10*time.Second {
		t.Errorf("%+v", cfg)
	}
	cfg = Config{Upstream: u, Dedicated: true, UpstreamConns: 4}
	if cfg.setDefaults(); cfg.UpstreamConns != 0 {
		t.Errorf("%d lanes, though clients share none", cfg.UpstreamConns)
	}
}
