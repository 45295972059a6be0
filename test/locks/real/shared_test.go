package real_test

import (
	"fmt"
	"strings"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/wire"
)

// One release admits many waiting readers, in one script: all of them are written at once, and no
// proxy is told. A poll that is under way meanwhile speaks for the readers behind the first: then
// the release admits the first, and the next poll the others.
func TestReleaseAdmitsAllReaders(t *testing.T) {
	t.Parallel()
	server, p := proxytest.StartBoth(t)
	proxytest.Start(t, server.URL(), nil)
	direct, monitor := proxytest.Dial(t, server.Addr()), proxytest.Dial(t, server.Addr())
	monitor.Expect("MONITOR", "+OK\r\n")
	round := 0
	testwait.Until(t, "readers are admitted together", func() bool {
		round++ // on a slow machine some still ask whether their owner has it
		steps := admitReaders(t, p, direct, monitor, fmt.Sprint("doc", round))
		return steps <= 3 || t.Failed()
	})
}

// admitReaders releases a lock for which 100 readers wait, and returns in how many steps they were
// given it.
func admitReaders(
	t *testing.T, p *proxytest.Proxy, direct, monitor *proxytest.Conn, doc string,
) (admissions int) {
	writer := proxytest.Dial(t, p.Addr)
	token := writer.Lock(doc + " 300")
	var readers []*proxytest.Conn
	for i := range 100 {
		c := proxytest.Dial(t, p.Addr)
		c.Send(fmt.Sprintf("LOCK %s 300 SHARED WAIT 300 OWNER reader:%d", doc, i))
		readers = append(readers, c)
	}
	proxytest.AwaitWaiters(t, p, doc, len(readers))
	writer.Expect(proxytest.Unlock(doc, token), ":1\r\n")
	given := map[int64]bool{}
	for _, c := range readers {
		got := proxytest.Token(t, c.Reply())
		if got <= token || given[got] {
			t.Fatalf("a reader has token %d after %d", got, token)
		}
		given[got] = true
	}
	direct.Expect("ECHO "+doc, wire.Bulk(doc))
	releases, messages := 0, 0
	for line := ""; !strings.Contains(line, `"ECHO"`); {
		line = monitor.Reply()
		switch {
		case strings.Contains(line, fmt.Sprintf(` token %d `, token)):
			releases++
		case releases == 0: // before the release
		case strings.Contains(line, `lua] "ZADD"`) && strings.Contains(line, `"@reader:`):
			admissions++
		case strings.Contains(line, `lua] "PUBLISH"`):
			messages++
		}
	}
	if releases != 1 || admissions < 1 || messages != 0 {
		t.Errorf("100 readers were admitted by %d scripts in %d steps, with %d messages to proxies",
			releases, admissions, messages)
	}
	info := writer.Do("LOCKINFO " + doc + " HOLDERS")
	if n := strings.Count(info, "reader:"); n != 100 {
		t.Errorf("%d holders are listed", n)
	}
	return admissions
}
