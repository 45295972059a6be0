package sharing_test

import (
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
)

// A push that Redis puts into the middle of a reply makes no client's reply another's.
func TestPushesWithinReplies(t *testing.T) {
	server := testredis.Start(t, "--enable-debug-command", "yes")
	proxytest.PushedInto(t, sharing(t, server, 1), server, true)
}
