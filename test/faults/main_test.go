//go:build faults

// Package faults_test does faults to real processes, and shows by histories what is promised and
// what is not (make test-faults, make test-cluster).
package faults_test

import (
	"testing"

	"lockproxy/internal/proxytest"
)

func TestMain(m *testing.M) { proxytest.Main(m) }
