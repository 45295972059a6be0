package real_test

import (
	"strings"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testwait"
)

// Places by real scripts: in RESP2 and RESP3, for a user who may do only what LOCK needs, shared and
// exclusive, and refused where LOCK is.
func TestPlaces(t *testing.T) {
	t.Parallel()
	_, p := proxytest.StartBoth(t, "--user", "app", "on", ">pw", "~app:*", "&*", "+@all",
		"-@dangerous")
	a, b := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	b.Do("HELLO 3 AUTH app pw")
	for _, options := range []string{"", " SHARED", " LIMIT 3 OWNER me"} {
		ask, token := "LOCK app:job 300 PLACE 60"+options, a.Lock("app:job 300")
		b.Expect(ask, "_\r\n")
		b.Expect(ask, "_\r\n")
		a.Expect("LOCK app:job 300", "$-1\r\n")
		a.Expect(proxytest.Unlock("app:job", token), ":1\r\n")
		got := ""
		testwait.Until(t, "its turn comes", func() bool {
			got = b.Do(ask)
			return got != "_\r\n"
		})
		mine := proxytest.Token(t, got)
		if mine <= token {
			t.Errorf("token %d after %d", mine, token)
		}
		b.Expect(proxytest.Unlock("app:job", mine), ":1\r\n")
	}
	if got := b.Do("LOCK other 300 PLACE 60"); !strings.HasPrefix(got, "-NOPERM ") {
		t.Errorf("without rights: %q", got)
	}
	for asked, said := range map[string]string{
		"LOCK job 300 PLACE": `-ERR syntax error near "PLACE": PLACE lacks its value, want PLACE seconds`,
		"LOCK job 300 PLACE x": `-ERR PLACE is not a float or out of range: "x" (seconds, at least 0.1, ` +
			"at most 60)",
		"LOCK job 300 PLACE 0.09":     `-ERR PLACE is not a float or out of range: "0.09"`,
		"LOCK job 300 PLACE 61":       `-ERR PLACE is not a float or out of range: "61"`,
		"LOCK job 300 PLACE 5 WAIT 5": "-ERR syntax error near \"WAIT\": WAIT and PLACE exclude each other",
		"LOCKALL 300 1 job PLACE 5":   `-ERR syntax error near "PLACE": want WAIT seconds, SESSION or`,
		"ONCE job 300 PLACE 5":        `-ERR syntax error near "PLACE": want EARLY seconds`,
		"LOCK job 300 PLACES 5":       `-ERR syntax error near "PLACES": want SHARED, LIMIT n, WAIT seconds, SESSION, MAX`,
	} {
		if got := a.Do(asked); !strings.HasPrefix(got, said) {
			t.Errorf("%s: %q", asked, got)
		}
	}
	a.Expect("MULTI", "+OK\r\n")
	if got := a.Do("LOCK job 300 PLACE 5"); !strings.HasPrefix(got, "-ERR ") {
		t.Errorf("in MULTI: %q", got)
	}
	a.Expect("EXEC", "-EXECABORT …")
}
