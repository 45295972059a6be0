package locks_test

import (
	"fmt"
	"strings"
	"testing"

	"lockproxy/internal/proxytest"
)

// One release admits many waiting readers, in one script: all of them are written at once, and no
// proxy is told. A poll that is under way meanwhile speaks for the readers behind the first: then
// the release admits the first, and the next poll the others.
func TestReleaseAdmitsAllReaders(t *testing.T) {
	t.Parallel()
	server, p := proxytest.StartBoth(t)
	proxytest.Start(t, server.URL(), nil)
	writer := proxytest.Dial(t, p.Addr)
	token := writer.Lock("doc 300")
	var readers []*proxytest.Conn
	for i := range 100 {
		c := proxytest.Dial(t, p.Addr)
		c.Send(fmt.Sprintf("LOCK doc 300 SHARED WAIT 300 OWNER reader:%d", i))
		readers = append(readers, c)
	}
	proxytest.AwaitWaiters(t, p, "doc", len(readers))
	direct, monitor := proxytest.Dial(t, server.Addr()), proxytest.Dial(t, server.Addr())
	monitor.Expect("MONITOR", "+OK\r\n")
	writer.Expect(proxytest.Unlock("doc", token), ":1\r\n")
	given := map[int64]bool{}
	for _, c := range readers {
		got := proxytest.Token(t, c.Reply())
		if got <= token || given[got] {
			t.Fatalf("a reader has token %d after %d", got, token)
		}
		given[got] = true
	}
	direct.Expect("ECHO all", proxytest.Bulk("all"))
	releases, admissions, messages := 0, 0, 0
	for line := ""; !strings.Contains(line, `"ECHO" "all"`); {
		line = monitor.Reply()
		switch {
		case strings.Contains(line, fmt.Sprintf(` token %d `, token)):
			releases++
		case strings.Contains(line, `lua] "ZADD"`) && strings.Contains(line, `"@reader:`):
			admissions++
		case strings.Contains(line, `lua] "PUBLISH"`):
			messages++
		}
	}
	if releases != 1 || admissions < 1 || admissions > 3 || messages != 0 {
		t.Errorf("100 readers were admitted by %d scripts in %d steps, with %d messages to proxies",
			releases, admissions, messages)
	}
	info := writer.Do("LOCKINFO doc HOLDERS")
	if n := strings.Count(info, "reader:"); n != 100 {
		t.Errorf("%d holders are listed", n)
	}
}
