//go:build clients

// Package clients_test runs real client libraries in several languages (make test-clients).
package clients_test

import (
	"testing"

	"lockproxy/internal/test/proxytest"
)

func TestMain(m *testing.M) { proxytest.Main(m) }
