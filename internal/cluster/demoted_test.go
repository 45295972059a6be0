package cluster_test

import (
	"strings"
	"testing"

	"lockproxy/internal/test/testredis"
)

// A master that has become a replica refuses writes without keys differently from those with keys.
// Another master runs them, though the Conn has not learned yet which node that is. It does not run
// a script again, since nobody knows what that has done before its write was refused.
func TestWriteWithoutKeysAfterFailover(t *testing.T) {
	t.Parallel()
	c := testredis.StartCluster(t, 1, 1)
	k, other, third := open(t, c), open(t, c), open(t, c)
	third.expect("PING", "+PONG\r\n")
	k.expect("PING", "+PONG\r\n")
	other.expect("PING", "+PONG\r\n")
	c.Failover(c.Nodes[0])
	k.expect("LMPOP 0 l LEFT", "-ERR numkeys should be greater than 0\r\n")
	third.expect("BLMPOP 0 0 l LEFT", "-ERR numkeys should be greater than 0\r\n")
	k.expect("PING", "+PONG\r\n")
	got := other.ask("EVAL return(redis.pcall('flushall')) 0")
	if !strings.HasPrefix(got, "-READONLY") {
		t.Errorf("a script at the replica: %q", got)
	}
}
