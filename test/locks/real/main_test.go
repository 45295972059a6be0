// Package locks_test is about the lock commands as clients see them: LOCK, UNLOCK, WAIT, SESSION,
// OWNER, RELOCK, FENCE, LOCKINFO, LOCKSCAN; fairness, foreign locks, replicas and Sentinel.
package real_test

import (
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
)

func TestMain(m *testing.M) { proxytest.Main(m, testredis.Upstreams, testredis.Clients) }
