package relay_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/proxy"
)

// A client that must log in first has exactly Redis's limits
// before, and is refused in Redis's words.
func TestLimitsBeforeLogin(t *testing.T) {
	bulk := func(n int) string { return fmt.Sprintf("$%d\r\n%s\r\n", n, strings.Repeat("x", n)) }
	args := func(n int) string {
		return fmt.Sprintf("*%d\r\n$3\r\nDEL\r\n", n) + strings.Repeat(bulk(1), n-1)
	}
	const quit = "QUIT\r\n" // Redis can lose the end of a large reply to a client that half-closes
	auth := "*2\r\n$4\r\nAUTH\r\n$6\r\nsecret\r\n"
	requests := []string{
		args(10),
		args(11),
		"*11\r\n",
		"*2147483648\r\n",
		"*2\r\n$4\r\nECHO\r\n" + bulk(16384),
		"*2\r\n$4\r\nECHO\r\n" + bulk(16385),
		"*2\r\n$4\r\nAUTH\r\n$16385\r\n",
		"*2\r\n$4\r\nAUTH\r\n$921600\r\n" + strings.Repeat("x", 1000),
		"*2\r\n$4\r\nAUTH\r\n$536870913\r\n",
		"*10\r\n$3\r\nDEL\r\n" + strings.Repeat(bulk(16384), 9), // streamed
		"*10\r\n$3\r\nDEL\r\n" + strings.Repeat(bulk(16384), 8) + bulk(9) + args(10) + "*11\r\n",
		auth + args(11) + "*2\r\n$4\r\nECHO\r\n" + bulk(100000) + args(200) + quit,
		auth + "PING\r\n" + "*2\r\n$4\r\nECHO\r\n" + bulk(100000) + quit,
		"*2\r\n$4\r\nAUTH\r\n$5\r\nwrong\r\n" + args(11),
		"*2\r\n$4\r\nAUTH\r\n$5\r\nwrong\r\n" + auth + args(11),
		"*5\r\n$5\r\nHELLO\r\n$1\r\n2\r\n$4\r\nAUTH\r\n$7\r\ndefault\r\n$5\r\nwrong\r\n" + args(11),
		auth + "MULTI\r\nPING\r\n" + args(11) + "EXEC\r\n",
		auth + args(11) + "RESET\r\n" + args(11),
		auth + args(11) + "RESET\r\n" + auth + args(11),
		"PING\r\n" + args(11),
		"RESET\r\n" + args(11),
		"QUIT\r\n" + args(11),
	}
	clientID := regexp.MustCompile(`id\r\n:\d+`) // in HELLO's reply
	talk := func(t *testing.T, addr string, pieces ...[]byte) string {
		return clientID.ReplaceAllString(hostileTalk(t, addr, pieces...), "id")
	}
	for name, setup := range map[string]string{
		"requirepass":       "CONFIG SET requirepass secret",
		"no password":       "PING",
		"default user off":  "ACL SETUSER default off nopass",
		"default user bare": "ACL SETUSER default nopass nocommands", // no login necessary
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			server := testredis.Start(t)
			proxytest.Dial(t, server.Addr()).Do(setup)
			p := proxytest.Start(t, server.URL(), nil)
			for _, request := range requests {
				want := talk(t, server.Addr(), []byte(request))
				if got := talk(t, p.Addr, []byte(request)); got != want {
					t.Errorf("%.60q: the answer is %.300q, Redis says %.300q", request, got, want)
				}
				if len(request) > 2000 {
					continue
				}
				if got := talk(t, p.Addr, hostileBytes([]byte(request))...); got != want {
					t.Errorf("%.60q byte by byte: the answer is %.300q, Redis says %.300q", request,
						got, want)
				}
			}
		})
	}
}

// While the upstream cannot be asked whether a client must log in, a client that sends more than is
// allowed before a login is told why it is not served.
func TestLimitsBeforeLoginWithoutUpstream(t *testing.T) {
	server, p := proxytest.StartBoth(t)
	server.Kill()
	c := proxytest.Dial(t, p.Addr)
	c.WriteRaw("*11\r\n")
	if got := c.Reply(); !strings.HasPrefix(got, "-UPSTREAM ") {
		t.Errorf("got %q, want UPSTREAM", got)
	}
	c.Closed()
}

// Before login, a client cannot learn from lock commands or
// COMMAND that a proxy is in front of Redis.
func TestLockCommandsBeforeLogin(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t, "--requirepass", "secret")
	for name, change := range map[string]func(*proxy.Config){
		"as_is": nil, "dedicated": func(cfg *proxy.Config) { cfg.Dedicated = true },
	} {
		t.Run(name, func(t *testing.T) {
			p := proxytest.Start(t, server.URL(), change)
			for _, command := range []string{
				"LOCK HELP", "LOCK", "LOCK k", "LOCK k 600", "LOCK k ten",
				"LOCK k 600 WAIT 1 NONSENSE",
				"LOCK k 600 WAIT 1", "UNLOCK", "UNLOCK k", "UNLOCK k nonsense", "RELOCK k",
				"RELOCK k 1 x",
				"LOCKINFO", "LOCKINFO k", "LOCKSCAN x", "LOCKSCAN 0", "FENCE k", "FENCE k x GET k",
				"FENCE k 1 MULTI", "COMMAND DOCS LOCK", "COMMAND INFO LOCK",
				"COMMAND GETKEYS LOCK k 600",
				"COMMAND COUNT", "COMMAND LIST",
			} {
				c := proxytest.Dial(t, p.Addr)
				c.Expect(command, "-NOAUTH Authentication required.\r\n")
				c.Expect(command, "-NOAUTH Authentication required.\r\n")
				c.Expect("AUTH secret", "+OK\r\n")
				if got := c.Do(command); strings.HasPrefix(got, "-NOAUTH") {
					t.Errorf("%s after AUTH: %q", command, got)
				}
				c.Expect("RESET", "+RESET\r\n")
				c.Expect(command, "-NOAUTH Authentication required.\r\n")
				c.Close()
			}
			c := proxytest.Dial(t, p.Addr)
			c.WriteRaw("LOCK\r\nLOCK k 600\r\nUNLOCK\r\n") // asked together
			for range 3 {
				if got := c.Reply(); got != "-NOAUTH Authentication required.\r\n" {
					t.Errorf("in a pipeline: %q", got)
				}
			}
		})
	}
}
