package real_test

import (
	"fmt"
	"strings"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testwait"
)

// CLIENT UNBLOCK ends a watch as it ends any wait, in RESP2 and RESP3; and a client that leaves is
// forgotten.
func TestChangedEndsOtherwise(t *testing.T) {
	t.Parallel()
	_, p := proxytest.StartBoth(t)
	a, standby := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	id := strings.Trim(standby.Do("CLIENT ID"), ":\r\n")
	token := a.Lock("job 600")
	unblocked := func(command string) {
		t.Helper()
		testwait.Until(t, "the watch is ended", func() bool { return a.Do(command) == ":1\r\n" })
	}
	ask := fmt.Sprintf("LOCKINFO job CHANGED %d WAIT 0", token)
	for _, null := range []string{"$-1\r\n", "_\r\n"} {
		standby.Send(ask)
		unblocked("CLIENT UNBLOCK " + id)
		standby.WantReply(null)
		a.Expect("CLIENT UNBLOCK "+id, ":0\r\n")
		standby.Send(ask)
		unblocked("CLIENT UNBLOCK " + id + " ERROR")
		standby.WantReply("-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n")
		standby.Do("HELLO 3")
	}
	standby.Send(ask, "PING")
	standby.Close()
	a.Expect("UNLOCK job", ":1\r\n")

	for asked, said := range map[string]string{
		"LOCKINFO job CHANGED":          `-ERR syntax error near "CHANGED": CHANGED lacks its value`,
		"LOCKINFO job CHANGED x":        `-ERR value is not an integer or out of range: "x"`,
		"LOCKINFO job CHANGED 1 WAIT":   `-ERR syntax error near "WAIT": WAIT lacks its value`,
		"LOCKINFO job CHANGED 1 WAIT x": `-ERR WAIT is not a float or out of range: "x"`,
		"LOCKINFO job CHANGED 1 FOR":    `-ERR syntax error near "FOR": want WAIT seconds`,
		"LOCKINFO job HOLDERS WAIT":     `-ERR wrong number of arguments for 'lockinfo'`,
		"LOCKINFO job NOBODY":           `-ERR syntax error near "NOBODY": want HOLDERS, WAITERS or`,
	} {
		if got := a.Do(asked); !strings.HasPrefix(got, said) {
			t.Errorf("%s: %q", asked, got)
		}
	}
	a.Expect("MULTI", "+OK\r\n")
	if got := a.Do(ask); !strings.HasPrefix(got, "-ERR ") {
		t.Errorf("in MULTI: %q", got)
	}
	a.Expect("EXEC", "-EXECABORT …")
}
