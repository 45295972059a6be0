//go:build !race

package virtual_test

import (
	"testing"

	"lockproxy/internal/proxytest"
)

func TestMain(m *testing.M) { proxytest.Main(m) }
