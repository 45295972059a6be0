package real_test

// Locks of other libraries and recipes have their own TTL:
// LOCK leaves them to their holders until that ends.

import (
	"testing"

	"lockproxy/internal/test/proxytest"
)

// A TTL of centuries is no reason for a waiter to ask all the time.
func TestWaitForLockOfCenturies(t *testing.T) {
	t.Parallel()
	server, p := proxytest.StartBoth(t)
	direct, c := proxytest.GoRedis(t, server.Addr()), proxytest.Dial(t, p.Addr)
	direct.Do(proxytest.Ctx, "SET", "key", "random", "PX", "9000000000000000")
	direct.Set(proxytest.Ctx, "timestamp", "17954990000000", 0) // of the year 2538
	for _, lock := range []string{
		"LOCK key 300", "LOCK timestamp 300", "LOCKALL 300 1 key", "LOCKALL 300 1 timestamp",
	} {
		before, _ := scriptCalls(t, direct)
		c.ExpectInTime(lock+" WAIT 0.5", "$-1\r\n")
		if after, _ := scriptCalls(t, direct); after-before > 30 {
			t.Errorf("%s: %d scripts within half a second", lock, after-before)
		}
	}
}
