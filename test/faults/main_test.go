//go:build faults

// Package faults_test does faults to real processes, and shows by histories what is promised and
// what is not (make test-faults, make long SUITE=cluster).
package faults_test

import (
	"testing"

	"github.com/redis/go-redis/v9/logging"

	"lockproxy/internal/test/proxytest"
)

func TestMain(m *testing.M) {
	logging.Disable() // servers that are down are no news here
	proxytest.Main(m)
}
