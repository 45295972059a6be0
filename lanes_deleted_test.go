package lockproxy_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/testredis"
	"lockproxy/proxy"
)

// Who was logged in as a user that has been deleted isn't served as another of the same name.
func TestAnotherUserOfTheSameName(t *testing.T) {
	server := testredis.Start(t)
	p := startProxy(t, server.URL(), func(cfg *proxy.Config) { cfg.Dedicated = false })
	admin := dial(t, server.Addr())
	for i := range 20 { // with other passwords each time: connections of the last time's may be about to end
		admin.expect(fmt.Sprintf("ACL SETUSER ann on >old%d ~* &* +@all", i), "+OK\r\n")
		old := dial(t, p.addr)
		old.expect(fmt.Sprintf("AUTH ann old%d", i), "+OK\r\n")
		old.expect("GET a", "$-1\r\n")
		admin.send("ACL DELUSER ann", fmt.Sprintf("ACL SETUSER ann on >new%d ~* &* +@all", i))
		admin.reply()
		admin.reply()
		newer := dial(t, p.addr)
		newer.expect(fmt.Sprintf("AUTH ann new%d", i), "+OK\r\n")
		newer.expect("GET a", "$-1\r\n")
		if _, err := old.Write([]byte("MULTI\r\nACL WHOAMI\r\nEXEC\r\n")); err == nil {
			if got, err := old.tryReply(5 * time.Second); err == nil && !strings.HasPrefix(got, "-UPSTREAM") {
				t.Fatalf("it is answered %q", got)
			}
		}
		old.Close()
		newer.Close()
		admin.expect("ACL DELUSER ann", ":1\r\n")
	}
}
