package real_test

import (
	"strings"
	"testing"

	"lockproxy/internal/test/proxytest"
)

// A relayed command that ends a session lock is noticed at once.
func TestSessionLockEndedByARelayedCommand(t *testing.T) {
	t.Parallel()
	_, p := proxytest.StartBoth(t)
	// Without CLIENT TRACKING, which would tell as well.
	proxytest.Dial(t, p.Addr).Expect("ACL SETUSER default -client|tracking", "+OK\r\n")
	large := strings.Repeat("x", 300<<10)
	for _, ends := range []string{
		"DEL job", "UNLINK a job b", "SET job hello", "SET job hello EX 9",
		"GETSET job 5", "MSET a 1 job 2", "EXPIRE job 0", "PERSIST job", "RENAME job other",
		"RENAME from job", "APPEND job 1", "INCR job", "FLUSHALL", "FLUSHDB", "MOVE job 3",
		"EVAL return(redis.call('del',KEYS[1])) 1 job", "PING|DEL job|PING",
		"MULTI|DEL job|EXEC", "MULTI|DEL other|SET job 3|EXEC|PING", "SET job " + large,
		"SELECT 0|DEL job"} {
		t.Run(ends[:min(len(ends), 40)], func(t *testing.T) {
			c, other := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
			other.Do("SET from 1")
			c.Do("HELLO 3")
			token := c.Lock("job 300 SESSION")
			commands := strings.Split(ends, "|")
			other.Send(commands...)
			for _, command := range commands {
				if got := other.Reply(); got[0] == '-' {
					t.Fatalf("%s: %s", command, got)
				}
			}
			wantLost(t, c, "3", "job", token)
			other.Do("FLUSHALL")
		})
	}
}

// What leaves a session lock to its holder does not close its connection, however often it passes.
func TestSessionLockKeptByWhatPasses(t *testing.T) {
	t.Parallel()
	server, p := proxytest.StartBoth(t)
	c, other := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	c.Do("HELLO 3")
	token := c.Lock("job 300 SESSION")
	awaitTracking(t, proxytest.GoRedis(t, server.Addr()), "1") // each change has the lock verified
	for range 50 {
		other.Do("SET job 5 NX PX 600000")
		other.Do("SETNX job 5")
		other.Do("GET job")
		other.Do("DEL other")
		other.Do("EXPIRE job 100")
		other.Do("EVAL return(0) 1 job")
		other.Asked("MULTI", "+OK")
		other.Do("DEL job")
		other.Do("DISCARD")
		other.Do("LPUSH job x") // WRONGTYPE
		other.Do("SELECT 3")
		other.Do("SET job 3")
		other.Do("SELECT 0")
	}
	c.Expect(proxytest.Unlock("job", token), ":1\r\n")
	c.Expect("PING", "+PONG\r\n")
}
