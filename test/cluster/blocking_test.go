package cluster_test

import (
	"strings"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testwait"
)

// What is pipelined behind a command that blocks waits for it, on whichever nodes, and is not run
// for a client that leaves meanwhile.
func TestClusterBehindABlockingCommand(t *testing.T) {
	cluster := proxytest.SixNodes(t)
	p := proxytest.Start(t, cluster.URL(), nil)
	c := proxytest.Dial(t, p.Addr)
	blocked := func() string {
		for _, node := range cluster.Nodes {
			for line := range strings.Lines(node.Ask("CLIENT", "LIST")) {
				if strings.Contains(line, " cmd=blpop ") {
					return line
				}
			}
		}
		return ""
	}
	await := func(waits bool) {
		t.Helper()
		testwait.Until(t, "BLPOP waits, or does not any more", func() bool {
			return (blocked() != "") == waits
		})
	}
	// a, b and c are three masters'.
	c.Expect("DEL blocking:a blocking:b blocking:c", ":…")
	c.Expect("RPUSH blocking:b element", ":1\r\n")
	behind := []string{"BLPOP blocking:a 0", "BLPOP blocking:b 0", "SET blocking:c 1",
		"LOCK blocking 600", "MULTI", "INCR blocking:c", "EXEC", "UNLOCK blocking"}

	leaves := proxytest.Dial(t, p.Addr)
	leaves.Send(behind...)
	await(true)
	leaves.Close()
	await(false)
	c.Expect("LRANGE blocking:b 0 -1", "*1\r\n$7\r\nelement\r\n")
	c.Expect("EXISTS blocking:c", ":0\r\n")

	stays := proxytest.Dial(t, p.Addr)
	stays.Send(behind...)
	await(true)
	c.Expect("LRANGE blocking:b 0 -1", "*1\r\n$7\r\nelement\r\n")
	c.Expect("EXISTS blocking:c", ":0\r\n")
	c.Expect("RPUSH blocking:a first", ":1\r\n")
	stays.WantReply("*2\r\n$10\r\nblocking:a\r\n$5\r\nfirst\r\n")
	stays.WantReply("*2\r\n$10\r\nblocking:b\r\n$7\r\nelement\r\n")
	stays.WantReply("+OK\r\n")
	if token := stays.Reply(); token[0] != ':' {
		t.Errorf("LOCK: %q", token)
	}
	for _, want := range []string{"+OK\r\n", "+QUEUED\r\n", "*1\r\n:2\r\n", ":1\r\n"} {
		stays.WantReply(want)
	}
}
