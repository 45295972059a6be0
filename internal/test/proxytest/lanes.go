package proxytest

import (
	"strings"
	"testing"

	"lockproxy/internal/test/testwait"
)

// SharedClient returns a client that the upstream has answered, so that what it asks next can go by
// a lane.
func SharedClient(t testing.TB, addr string) *Conn {
	t.Helper()
	c := Dial(t, addr)
	c.Expect("PING", "+PONG\r\n")
	OpenLane(t, addr)
	c.Expect("PING", "+PONG\r\n")
	return c
}

// OpenLane returns when the proxy at addr has a lane for what logs in with these commands, if its
// clients share any: for one client alone it opens none.
func OpenLane(t testing.TB, addr string, login ...string) {
	t.Helper()
	known, ok := testProxies.Load(addr)
	if !ok {
		return
	}
	p := known.(*Proxy)
	twins := []*Conn{Dial(t, addr), Dial(t, addr)}
	for _, c := range twins {
		defer c.Close()
		for _, command := range login {
			if got := c.Do(command); got[0] == '-' {
				t.Fatalf("%s: %q", command, got)
			}
		}
	}
	if !p.Shares {
		return
	}
	testwait.Until(t, "a lane is open", func() bool {
		twins[1].Do("PING")
		id := strings.Trim(twins[0].Do("CLIENT ID"), ":\r\n") // by its home
		twins[0].Do("PING")
		// which went by a lane, then
		return !strings.Contains(twins[1].Do("CLIENT LIST ID "+id), "cmd=ping")
	})
}
