package relay_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/wire"
	"lockproxy/proxy"
)

// infoLines is the text of an INFO reply as a map.
func infoLines(t testing.TB, raw string) map[string]string {
	t.Helper()
	v, err := wire.Parse(raw)
	if err != nil || v.Type != '$' && v.Type != '=' {
		t.Fatalf("not a text: %q, %v", raw, err)
	}
	lines := map[string]string{}
	for line := range strings.SplitSeq(v.Text, "\r\n") {
		if name, value, ok := strings.Cut(line, ":"); ok {
			lines[name] = value
		}
	}
	return lines
}

func TestInfoSection(t *testing.T) {
	_, p := proxytest.StartBoth(t)
	c := proxytest.Dial(t, p.Addr)
	for range 3 {
		c.Expect("PING", "+PONG\r\n")
	}
	token := c.Lock("a 600")
	c.Expect("LOCK a 600", "$-1\r\n")
	c.Expect("FENCE a 1 SET x 1", "-FENCED…")
	c.Expect(proxytest.Unlock("a", token), ":1\r\n")
	for _, command := range []string{"INFO lockproxy", "info LOCKPROXY", "INFO server lockproxy"} {
		got := infoLines(t, c.Do(command))
		for name, want := range map[string]string{
			"locks_acquired": "1", "locks_refused": "1", "locks_unlocked": "1",
			"fences_refused": "1", "lock_commands": "4",
			"connected_clients": "1", "upstream_status": "up",
			"locks_held": "0", "lock_waiters": "0",
		} {
			if got[name] != want {
				t.Errorf("%s: %s is %q, want %q", command, name, got[name], want)
			}
		}
		if both := strings.Contains(command, "server"); both != (got["redis_version"] != "") {
			t.Errorf("%s: redis_version %q", command, got["redis_version"])
		}
	}
	for _, command := range []string{"INFO", "INFO all", "INFO everything", "INFO server"} {
		if raw := c.Do(command); strings.Contains(raw, "Lockproxy") ||
			!strings.Contains(raw, "redis_version") {
			t.Errorf("%s is not only the upstream's: %.60q", command, raw)
		}
	}
}

// In every state of a connection, INFO lockproxy is answered in order and in the client's protocol.
func TestInfoSectionWhereItIsSent(t *testing.T) {
	_, p := proxytest.StartBoth(t)
	c := proxytest.Dial(t, p.Addr)
	c.Send("SET k 1", "INFO lockproxy", "GET k", "MULTI", "INFO lockproxy", "EXEC", "ECHO end")
	for _, want := range []string{"+OK\r\n", "$", "$1\r\n1\r\n", "+OK\r\n", "+QUEUED\r\n",
		"*1\r\n$0\r\n\r\n", "$3\r\nend\r\n"} {
		if got := c.Reply(); !strings.HasPrefix(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestInfoSectionRESP3(t *testing.T) {
	_, p := proxytest.StartBoth(t)
	c := proxytest.Dial(t, p.Addr)
	c.Expect("HELLO 3", "%…")
	if raw := c.Do("INFO lockproxy"); !strings.HasPrefix(raw, "=") ||
		!strings.Contains(raw, "\r\ntxt:# Lockproxy\r\n") {
		t.Errorf("got %q", raw)
	}
	if raw := c.Do("INFO keyspace lockproxy"); strings.Count(raw, "txt:") != 1 ||
		!strings.Contains(raw, "# Keyspace\r\n\r\n# Lockproxy\r\n") {
		t.Errorf("got %q", raw)
	}
	c.Expect("SUBSCRIBE news", ">3…")
	if raw := c.Do("INFO lockproxy"); !strings.Contains(raw, "# Lockproxy\r\n") {
		t.Errorf("subscribed, got %q", raw)
	}
}

// A user who may not run INFO at the upstream may not run it here.
func TestInfoSectionNeedsPermission(t *testing.T) {
	server, p := proxytest.StartBoth(t, "--requirepass", "secret")
	admin := proxytest.Dial(t, server.Addr())
	admin.Expect("AUTH secret", "+OK\r\n")
	admin.Expect("ACL SETUSER app on >pw ~* +ping", "+OK\r\n")
	c := proxytest.Dial(t, p.Addr)
	c.Expect("INFO lockproxy", "-NOAUTH …")
	c.Expect("AUTH app pw", "+OK\r\n")
	c.Expect("INFO lockproxy", "-NOPERM…")
	c.Expect("AUTH secret", "+OK\r\n")
	c.Expect("INFO lockproxy", "$…")
	sub := proxytest.Dial(t, p.Addr)
	sub.Expect("AUTH secret", "+OK\r\n")
	sub.Expect("SUBSCRIBE news", "*3…")
	sub.Expect("INFO lockproxy", "-ERR Can't execute 'info'…")
}

func TestInfoSectionWithUpstreamDown(t *testing.T) {
	server, p := proxytest.StartBoth(t)
	server.Kill()
	proxytest.Dial(t, p.Addr).Expect("INFO lockproxy", "-UPSTREAM …")
}

// lineLog is a log whose lines can be counted and found.
type lineLog struct{ testredis.LogBuffer }

func (l *lineLog) count(part string) int { return strings.Count(l.String(), part) }

// line is the first line that contains part; "" if there is none.
func (l *lineLog) line(part string) string {
	for line := range strings.Lines(l.String()) {
		if strings.Contains(line, part) {
			return line
		}
	}
	return ""
}

// One line names a long waiter and the holder it waits for; one more line names each FORCE.
func TestLogLines(t *testing.T) {
	server, _ := proxytest.StartBoth(t)
	log := &lineLog{}
	p := proxytest.Start(t, server.URL(), func(cfg *proxy.Config) {
		cfg.Locks.SlowWait = 50 * time.Millisecond
		cfg.Logger = hclog.New(&hclog.LoggerOptions{Output: log, Level: hclog.Info})
	})
	holder, waiter, other := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr),
		proxytest.Dial(t, p.Addr)
	token := holder.Lock("a 600 OWNER me")
	waiter.Send("LOCK a 600 WAIT 0")
	testwait.Until(t, "the log has a line for the wait", func() bool {
		return log.count("a client has waited long for a lock") == 1
	})
	for _, want := range []string{"key=a", "client=" + waiter.LocalAddr().String(), "holder=" +
		holder.LocalAddr().String(),
		"owner=me", fmt.Sprintf("token=%d", token), "waiters=1", "[WARN]"} {
		if !strings.Contains(log.line("has waited long"), want) {
			t.Errorf("no %s in %s", want, log.line("has waited long"))
		}
	}
	// One line for one wait: another wait that is as long has ended since.
	proxytest.Dial(t, p.Addr).Lock("b 600")
	proxytest.Dial(t, p.Addr).Send("LOCK b 600 WAIT 0")
	testwait.Until(t, "the log has a line for the other wait", func() bool {
		return log.line("key=b") != ""
	})
	if n := log.count("has waited long"); n != 2 {
		t.Errorf("%d lines for two waits", n)
	}
	other.Expect("UNLOCK a FORCE", ":1\r\n")
	if got := waiter.Reply(); !strings.HasPrefix(got, ":") {
		t.Errorf("the waiter got %q", got)
	}
	for _, want := range []string{"key=a", "client=" + other.LocalAddr().String(), "holder=" +
		holder.LocalAddr().String(),
		fmt.Sprintf("token=%d", token), "user=default", "via=redis", "[INFO]"} {
		if !strings.Contains(log.line("forced unlock"), want) {
			t.Errorf("no %s in %s", want, log.line("forced unlock"))
		}
	}
	other.Expect("UNLOCK nothing FORCE", ":0\r\n")
	proxytest.Dial(t, p.Addr).Expect("SET theirs random NX PX 3600000", "+OK\r\n")
	other.Expect("UNLOCK theirs FORCE", "-WRONGTYPE …")
	from := " client=" + other.LocalAddr().String() + " user=default via=redis"
	for _, want := range []string{"a forced unlock found no such lock: key=nothing db=0" + from + "\n",
		"a forced unlock was refused: key=theirs db=0" + from + " error="} {
		if log.count(want) != 1 {
			t.Errorf("no %q", want)
		}
	}
}

func TestStats(t *testing.T) {
	_, p := proxytest.StartBoth(t)
	c := proxytest.Dial(t, p.Addr)
	for range 100 {
		c.Send("SET k 1", "GET k")
		c.Reply()
		c.Reply()
	}
	c.Lock("s 600")
	c.ExpectInTime("LOCK s 600 WAIT 0.01", "$-1\r\n")
	holder := proxytest.Dial(t, p.Addr)
	holder.Lock("gone 600 SESSION")
	holder.Close()
	testwait.Until(t, "its lock is released", func() bool {
		return p.Server.Stats().Locks.Disconnect == 1
	})
	forced := proxytest.Dial(t, p.Addr)
	forced.Lock("f 600 SESSION")
	c.Expect("UNLOCK f FORCE", ":1\r\n")
	forced.Closed() // a RESP2 client learns of the loss by this
	first, second := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	token := first.Lock("h 600")
	second.Send("LOCK h 600 WAIT 0")
	testwait.Until(t, "a client waits", func() bool {
		return p.Server.Stats().Locks.Waiters == 1
	})
	first.Expect(proxytest.Unlock("h", token), ":1\r\n")
	second.Reply()
	testwait.Until(t, "two clients have ended", func() bool {
		return p.Server.Stats().Clients == 3
	})
	st := p.Server.Stats()
	l := st.Locks
	if l.Acquired != 5 || l.HandedOver != 1 || l.Overtime != 1 || l.Disconnect != 1 ||
		l.Forced != 1 || l.Lost != 1 || l.Unlocked != 1 || l.Holding != 2 {
		t.Errorf("locks: %+v", l)
	}
	if st.Commands[proxy.Relayed] != 200 || st.Accepted != 5 || st.Clients != 3 {
		t.Errorf("%+v", st)
	}
	up := st.Connections
	lanes := 1
	if proxytest.Dedicated {
		lanes = 0
	}
	if st.Connects == 0 || up.Lanes > lanes || proxytest.Dedicated && up.Homes != 3 {
		t.Errorf("%+v, %d connects", up, st.Connects)
	}
	if st.BytesOut < 100*10 || st.BytesIn < 100*40 {
		t.Errorf("%d bytes in, %d out", st.BytesIn, st.BytesOut)
	}
}

// A lock that was undone because no replica has it counts as neither acquired nor released.
func TestStatsOfUndoneLock(t *testing.T) {
	server, _ := proxytest.StartBoth(t)
	p := proxytest.Start(t, server.URL(), func(cfg *proxy.Config) {
		cfg.Locks.MinReplicas, cfg.Locks.ReplicaTimeout = 1, 50*time.Millisecond
	})
	proxytest.Dial(t, p.Addr).Expect("LOCK a 600", "-NOREPLICAS…")
	if l := p.Server.Stats().Locks; l.Acquired != 0 || l.Unlocked != 0 || l.Disconnect != 0 ||
		l.Failed != 1 || l.Holding != 0 {
		t.Errorf("%+v", l)
	}
}
