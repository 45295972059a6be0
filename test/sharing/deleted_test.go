package sharing_test

import (
	"fmt"
	"strings"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/proxy"
)

// A client of a deleted user isn't served as a new user of the same name.
func TestAnotherUserOfTheSameName(t *testing.T) {
	server := testredis.Start(t)
	p := proxytest.Start(t, server.URL(), func(cfg *proxy.Config) { cfg.Dedicated = false })
	admin := proxytest.Dial(t, server.Addr())
	// with other passwords each time: connections of the last time can be about to end
	for i := range 20 {
		admin.Expect(fmt.Sprintf("ACL SETUSER ann on >old%d ~* &* +@all", i), "+OK\r\n")
		old := proxytest.Dial(t, p.Addr)
		old.Expect(fmt.Sprintf("AUTH ann old%d", i), "+OK\r\n")
		old.Expect("GET a", "$-1\r\n")
		admin.Send("ACL DELUSER ann", fmt.Sprintf("ACL SETUSER ann on >new%d ~* &* +@all", i))
		admin.Reply()
		admin.Reply()
		newer := proxytest.Dial(t, p.Addr)
		newer.Expect(fmt.Sprintf("AUTH ann new%d", i), "+OK\r\n")
		newer.Expect("GET a", "$-1\r\n")
		if _, err := old.Write([]byte("MULTI\r\nACL WHOAMI\r\nEXEC\r\n")); err == nil {
			if got, err := old.TryReply(); err == nil &&
				!strings.HasPrefix(got, "-UPSTREAM") {
				t.Fatalf("it is answered %q", got)
			}
		}
		old.Close()
		newer.Close()
		admin.Expect("ACL DELUSER ann", ":1\r\n")
	}
}
