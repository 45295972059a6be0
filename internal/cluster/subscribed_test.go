package cluster_test

import (
	"strings"
	"testing"
)

// Requests behind the end of all subscriptions go where they belong, and those behind a
// subscription are refused, though none of these is confirmed when they come.
func TestRequestsBehindSubscriptions(t *testing.T) {
	t.Parallel()
	c := six(t)
	for _, kind := range []string{"", "P", "S"} {
		k := open(t, c)
		one, two, three := keyAt(t, c, 0, "b"), keyAt(t, c, 1, "b"), keyAt(t, c, 2, "b")
		k.send(kind+"SUBSCRIBE "+one, "GET "+two, kind+"UNSUBSCRIBE "+one,
			"MSET "+one+" 1 "+two+" 2 "+three+" 3", "MGET "+one+" "+two+" "+three,
			"CLIENT SETNAME "+kind+"behind", "MULTI", "GET "+two, "EXEC")
		confirmed := k.reply()
		refused, ended := k.reply(), k.reply()
		if confirmed[0] != '*' || !strings.HasPrefix(refused, "-ERR Can't execute 'get'") ||
			ended[0] != '*' {
			t.Errorf("%sSUBSCRIBE: %q, %q, %q", kind, confirmed, refused, ended)
		}
		k.replies(ok, "*3\r\n$1\r\n1\r\n$1\r\n2\r\n$1\r\n3\r\n", ok, ok, "+QUEUED\r\n",
			"*1\r\n$1\r\n2\r\n")
		for i, node := range c.Nodes[:3] {
			if !strings.Contains(node.Ask("CLIENT", "LIST"), " name="+kind+"behind ") {
				t.Errorf("node %d doesn't know the client's name", i)
			}
		}

		k.send("HELLO 3", kind+"SUBSCRIBE "+one, "MGET "+one+" "+two)
		if got := k.reply(); got[0] != '%' {
			t.Errorf("HELLO 3: %q", got)
		}
		if got := k.reply(); got[0] != '>' {
			t.Errorf("%sSUBSCRIBE: %q", kind, got)
		}
		k.replies("*2\r\n$1\r\n1\r\n$1\r\n2\r\n")
		k.send("RESET", kind+"SUBSCRIBE "+one, "RESET", "MGET "+one+" "+two)
		k.replies("+RESET\r\n")
		k.reply()
		k.replies("+RESET\r\n", "*2\r\n$1\r\n1\r\n$1\r\n2\r\n")
	}
}

// A client that has closed its side still gets the replies to requests that have waited.
func TestEndBehindSubscriptions(t *testing.T) {
	t.Parallel()
	c := six(t)
	k := open(t, c)
	k.send("SUBSCRIBE x", "UNSUBSCRIBE x", "MGET nothing none")
	k.nc.CloseWrite()
	k.reply()
	k.reply()
	k.replies("*2\r\n$-1\r\n$-1\r\n")
	if got, err := k.tryReply(); err == nil || got != "" {
		t.Errorf("behind the end: %q, %v", got, err)
	}
}
