// Package faults_test is faults done to real processes, and histories that show what is promised and what is not (make
// test-faults, make test-cluster).
package faults_test

import (
	"testing"

	"lockproxy/internal/proxytest"
)

func TestMain(m *testing.M) { proxytest.Main(m) }
