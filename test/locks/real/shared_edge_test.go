package real_test

import (
	"testing"

	"lockproxy/internal/test/proxytest"
)

// A user without the commands of sorted sets is told so before anything is written. Other clients
// of that user can release their locks.
func TestSharedNeedsRights(t *testing.T) {
	t.Parallel()
	server, p := proxytest.StartBoth(t, "--user", "app", "on", ">pw", "~*", "&*", "+@all",
		"-@sortedset")
	dial := func() *proxytest.Conn {
		c := proxytest.Dial(t, p.Addr)
		c.Expect("AUTH app pw", "+OK\r\n")
		return c
	}
	a, b, c := dial(), dial(), dial()
	a.Expect("LOCK doc 300 SHARED", "-NOPERM …")
	direct := proxytest.Dial(t, server.Addr())
	direct.Expect("EXISTS doc", ":0\r\n")
	token := a.Lock("doc 300")
	b.Send("LOCK doc 300 WAIT 300")
	proxytest.AwaitWaiters(t, p, "doc", 1)
	c.Expect("LOCK doc 300 SHARED WAIT 300", "-NOPERM …")
	a.Expect(proxytest.Unlock("doc", token), ":1\r\n")
	b.Expect(proxytest.Unlock("doc", proxytest.Token(t, b.Reply())), ":1\r\n")
	c.Lock("doc 300")
}
