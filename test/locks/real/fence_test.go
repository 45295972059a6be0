package real_test

import (
	"fmt"
	"strings"
	"testing"

	"lockproxy/internal/test/proxytest"
)

func TestFence(t *testing.T) {
	t.Parallel()
	_, p := proxytest.StartBoth(t)
	c, other := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	c.Expect("SET text x", "+OK\r\n")
	token := c.Lock("job 300")
	fence := fmt.Sprintf("FENCE job %d ", token)
	for command, want := range map[string]string{
		"SET a 1": "+OK\r\n", "LPOP none 2": "*-1\r\n", "GET none": "$-1\r\n",
		"NOSUCH": "-ERR unknown command 'NOSUCH'…", "LPUSH text x": "-WRONGTYPE…",
		"INCRBY n 9007199254740993": ":9007199254740993\r\n",
	} {
		c.Expect(fence+command, want)
	}
	c.Expect("HELLO 3", "%7…")
	c.Expect(fence+"HSET h f v", ":1\r\n")
	c.Expect(fence+"HGETALL h", "%1\r\n$1\r\nf\r\n$1\r\nv\r\n")
	c.Expect(fence+"ZADD z 1.5 m", ":1\r\n")
	c.Expect(fence+"ZSCORE z m", ",1.5\r\n")
	c.Expect(fence+"GET none", "_\r\n")
	c.Expect(fence+"EVAL return{1} 0", "*1\r\n:1\r\n")
	other.Expect(fence+"SET a 2", "+OK\r\n") // the token is the right

	c.Expect("WATCH a", "+OK\r\n")
	c.Expect(fence+"SET a 3", "-ERR FENCE can't be used between WATCH and MULTI…")
	c.Expect("UNWATCH", "+OK\r\n")
	c.Expect("UNLOCK job", ":1\r\n")
	c.Expect(fence+"SET a 4", "-FENCED …")
	c.Expect("FENCE job 1 SET a 4", "-FENCED …")
	c.Expect("GET a", "$1\r\n2\r\n")
	// Nothing of it is left on the connection.
	c.Send("MULTI", "SET a 5", "EXEC")
	for _, want := range []string{"+OK", "+QUEUED", "*1\r\n+OK"} {
		if got := c.Reply(); !strings.HasPrefix(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// What Redis says of a fenced write is what the client is told, also if it refuses the key that
// FENCE writes for a shared lock.
func TestFenceOfASharedLockAtAReplica(t *testing.T) {
	t.Parallel()
	server, p := proxytest.StartBoth(t)
	c := proxytest.Dial(t, p.Addr)
	token := c.Lock("doc 300 SHARED")
	server.Ask("REPLICAOF", "127.0.0.1", "1") // of a server that is not there
	c.Expect(fmt.Sprintf("FENCE doc %d SET x 1", token), "-READONLY …")
}
