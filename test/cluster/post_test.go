package cluster_test

import (
	"io"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
)

// An HTTP request ends its client, as in front of one Redis: otherwise a web page could have a
// browser send commands in the body of a POST.
func TestHTTPRequestsEndTheClient(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, 2, 0)
	p := proxytest.Start(t, cluster.URL(), nil)
	check := proxytest.Dial(t, p.Addr)
	for _, begin := range []string{
		"POST / HTTP/1.1\r\n", "GET / HTTP/1.1\r\nHost: x\r\n",
		"SET before 1\r\npost / HTTP/1.1\r\n", "MULTI\r\nPOST / HTTP/1.1\r\n",
	} {
		nc, err := proxytest.TryDial(p.Addr)
		if err != nil {
			t.Fatal(err)
		}
		nc.SetDeadline(testwait.Deadline())
		io.WriteString(nc, begin+"\r\nSET a 1\r\nSET b 1\r\nLOCK c 300\r\n")
		if got, err := io.ReadAll(nc); err != nil {
			t.Errorf("%q: the client stays, and is answered %q", begin, got)
		}
		nc.Close()
		check.Expect("EXISTS a", ":0\r\n")
		check.Expect("EXISTS b", ":0\r\n")
		check.Expect("LOCKINFO c", "$-1\r\n")
	}
	check.Expect("GET before", "$1\r\n1\r\n")
}
