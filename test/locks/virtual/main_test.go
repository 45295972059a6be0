//go:build !race

package virtual_test

import (
	"testing"

	"lockproxy/internal/test/proxytest"
)

func TestMain(m *testing.M) { proxytest.Main(m) }
