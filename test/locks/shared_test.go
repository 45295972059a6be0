package locks_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/proxytest"
)

// withTwo runs a test twice: with all clients at one proxy, and with every second one at another.
func withTwo(t *testing.T, test func(t *testing.T, dial func(i int) *proxytest.Conn)) {
	for _, proxies := range []int{1, 2} {
		t.Run(fmt.Sprintf("%d proxies", proxies), func(t *testing.T) {
			t.Parallel()
			server, p := proxytest.StartBoth(t)
			addrs := []string{p.Addr, p.Addr}
			if proxies == 2 {
				addrs[1] = proxytest.Start(t, server.URL(), nil).Addr
			}
			test(t, func(i int) *proxytest.Conn { return proxytest.Dial(t, addrs[i%2]) })
		})
	}
}

// A shared request behind a waiting exclusive one waits, too.
func TestReadersDoNotOvertakeAWriter(t *testing.T) {
	t.Parallel()
	withTwo(t, func(t *testing.T, dial func(int) *proxytest.Conn) {
		reader, writer, late, later := dial(0), dial(1), dial(0), dial(1)
		first := reader.Lock("doc 300 SHARED")
		writer.Send("LOCK doc 300 WAIT 300")
		time.Sleep(100 * time.Millisecond)
		late.Expect("LOCK doc 300 SHARED", "$-1\r\n")
		late.Expect("LOCK doc 300 SHARED WAIT 0.3", "$-1\r\n")
		late.Send("LOCK doc 300 SHARED WAIT 300")
		later.Send("LOCK doc 300 SHARED WAIT 300")
		time.Sleep(100 * time.Millisecond)
		reader.Expect(proxytest.Unlock("doc", first), ":1\r\n")
		token := proxytest.Token(t, writer.Reply())
		time.Sleep(100 * time.Millisecond)
		if late.Arrived() {
			t.Fatalf("a reader got %q next to the writer", late.Reply())
		}
		writer.Expect(proxytest.Unlock("doc", token), ":1\r\n")
		for _, c := range []*proxytest.Conn{late, later} {
			if got := proxytest.Token(t, c.Reply()); got <= token {
				t.Errorf("token %d after %d", got, token)
			}
		}
	})
}

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
		case strings.Contains(line, fmt.Sprintf(`"token %d `, token)):
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

func TestSharedSessionLocks(t *testing.T) {
	t.Parallel()
	withTwo(t, func(t *testing.T, dial func(int) *proxytest.Conn) {
		a, b, writer := dial(0), dial(1), dial(0)
		a.Lock("doc 1 SHARED SESSION")
		a.Lock("doc 1 SHARED SESSION") // a second holder on the same connection
		second := b.Lock("doc 1 SHARED SESSION")
		time.Sleep(1500 * time.Millisecond)
		writer.Expect("LOCK doc 300", "$-1\r\n")
		writer.Send("LOCK doc 300 WAIT 300")
		time.Sleep(50 * time.Millisecond)
		a.WriteRaw("QUIT\r\n")
		a.WantReply("+OK\r\n")
		time.Sleep(100 * time.Millisecond)
		if writer.Arrived() {
			t.Fatalf("the writer got %q while a reader is there", writer.Reply())
		}
		b.Expect(proxytest.Unlock("doc", second), ":1\r\n")
		proxytest.Token(t, writer.Reply())
	})
}
