package sharing_test

import (
	"strings"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testwait"
)

// A client closes while its requests wait after a blocking command: its session ends, so that the
// command takes no element for it.
func TestStuckClientsEnd(t *testing.T) {
	t.Parallel()
	server, p := proxytest.StartBoth(t)
	for _, more := range []string{
		strings.Repeat("SELECT 0\r\n", 18000),           // more than a client can be owed
		"RESET\r\n" + strings.Repeat("PING\r\n", 20000), // more than is read meanwhile
	} {
		c := proxytest.Dial(t, p.Addr)
		c.Expect("PING", "+PONG\r\n")
		c.WriteRaw("BLPOP list 0\r\n" + more)
		c.Close()
	}
	testwait.Until(t, "the clients' end", func() bool {
		return p.Server.Stats().Clients == 0
	})
	direct := proxytest.Dial(t, server.Addr())
	direct.Expect("RPUSH list a b c", ":3\r\n")
	direct.Expect("LLEN list", ":3\r\n")
}
