package lockproxy_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"lockproxy/internal/resp"
	"lockproxy/proxy"
)

// infoLines is the text of an INFO reply as a map.
func infoLines(t testing.TB, raw string) map[string]string {
	t.Helper()
	v, err := resp.ParseValue([]byte(raw))
	if err != nil || v.Type != '$' && v.Type != '=' {
		t.Fatalf("not a text: %q, %v", raw, err)
	}
	lines := map[string]string{}
	for line := range strings.SplitSeq(string(v.Text), "\r\n") {
		if name, value, ok := strings.Cut(line, ":"); ok {
			lines[name] = value
		}
	}
	return lines
}

func TestInfoSection(t *testing.T) {
	_, p := startBoth(t)
	c := dial(t, p.addr)
	for range 3 {
		c.expect("PING", "+PONG\r\n")
	}
	token := c.lock("a 30")
	c.expect("LOCK a 30", "$-1\r\n")
	c.expect("FENCE a 1 SET x 1", "-FENCED…")
	c.expect(unlock("a", token), ":1\r\n")
	for _, command := range []string{"INFO lockproxy", "info LOCKPROXY", "INFO server lockproxy"} {
		got := infoLines(t, c.do(command))
		for name, want := range map[string]string{
			"locks_acquired": "1", "locks_refused": "1", "locks_unlocked": "1", "fences_refused": "1", "lock_commands": "4",
			"connected_clients": "1", "upstream_status": "up", "upstream_connects": "1", "locks_held": "0", "lock_waiters": "0",
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
		if raw := c.do(command); strings.Contains(raw, "Lockproxy") || !strings.Contains(raw, "redis_version") {
			t.Errorf("%s isn't the upstream's alone: %.60q", command, raw)
		}
	}
}

// Whatever the connection's state, INFO lockproxy is answered in its turn and in the client's protocol.
func TestInfoSectionWhereItIsSent(t *testing.T) {
	_, p := startBoth(t)
	c := dial(t, p.addr)
	c.send("SET k 1", "INFO lockproxy", "GET k", "MULTI", "INFO lockproxy", "EXEC", "ECHO end")
	for _, want := range []string{"+OK\r\n", "$", "$1\r\n1\r\n", "+OK\r\n", "+QUEUED\r\n", "*1\r\n$0\r\n\r\n", "$3\r\nend\r\n"} {
		if got := c.reply(); !strings.HasPrefix(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestInfoSectionRESP3(t *testing.T) {
	_, p := startBoth(t)
	c := dial(t, p.addr)
	c.expect("HELLO 3", "%…")
	if raw := c.do("INFO lockproxy"); !strings.HasPrefix(raw, "=") || !strings.Contains(raw, "\r\ntxt:# Lockproxy\r\n") {
		t.Errorf("got %q", raw)
	}
	if raw := c.do("INFO keyspace lockproxy"); strings.Count(raw, "txt:") != 1 || !strings.Contains(raw, "# Keyspace\r\n\r\n# Lockproxy\r\n") {
		t.Errorf("got %q", raw)
	}
	c.expect("SUBSCRIBE news", ">3…")
	if raw := c.do("INFO lockproxy"); !strings.Contains(raw, "# Lockproxy\r\n") {
		t.Errorf("subscribed, got %q", raw)
	}
}

// Who may not INFO at the upstream may not here.
func TestInfoSectionNeedsPermission(t *testing.T) {
	server, p := startBoth(t, "--requirepass", "secret")
	admin := dial(t, server.Addr())
	admin.expect("AUTH secret", "+OK\r\n")
	admin.expect("ACL SETUSER app on >pw ~* +ping", "+OK\r\n")
	c := dial(t, p.addr)
	c.expect("INFO lockproxy", "-NOAUTH …")
	c.expect("AUTH app pw", "+OK\r\n")
	c.expect("INFO lockproxy", "-NOPERM…")
	c.expect("AUTH secret", "+OK\r\n")
	c.expect("INFO lockproxy", "$…")
	sub := dial(t, p.addr)
	sub.expect("AUTH secret", "+OK\r\n")
	sub.expect("SUBSCRIBE news", "*3…")
	sub.expect("INFO lockproxy", "-ERR Can't execute 'info'…")
}

func TestInfoSectionWithUpstreamDown(t *testing.T) {
	server, p := startBoth(t)
	server.Kill()
	dial(t, p.addr).expect("INFO lockproxy", "-UPSTREAM …")
}

// One line says who waits long, and for whom; one more is left of each FORCE.
func TestLogLines(t *testing.T) {
	server, _ := startBoth(t)
	log := &lockedLog{}
	p := startProxy(t, server.URL(), func(cfg *proxy.Config) {
		cfg.Locks.SlowWait = 50 * time.Millisecond
		cfg.Logger = hclog.New(&hclog.LoggerOptions{Output: log, Level: hclog.Info})
	})
	holder, waiter, other := dial(t, p.addr), dial(t, p.addr), dial(t, p.addr)
	token := holder.lock("a 30 OWNER me")
	waiter.send("LOCK a 30 WAIT 20")
	eventually(t, 5*time.Second, "a line of the wait", func() bool { return log.count("waiting long for a lock") == 1 })
	for _, want := range []string{"key=a", "client=" + waiter.LocalAddr().String(), "holder=" + holder.LocalAddr().String(),
		"owner=me", fmt.Sprintf("token=%d", token), "waiters=1", "[WARN]"} {
		if !strings.Contains(log.line("waiting long"), want) {
			t.Errorf("no %s in %s", want, log.line("waiting long"))
		}
	}
	other.expect("UNLOCK a FORCE", ":1\r\n")
	if got := waiter.reply(); !strings.HasPrefix(got, ":") {
		t.Errorf("the waiter got %q", got)
	}
	for _, want := range []string{"key=a", "client=" + other.LocalAddr().String(), "holder=" + holder.LocalAddr().String(),
		fmt.Sprintf("token=%d", token), "user=default", "via=redis", "released=true", "[INFO]"} {
		if !strings.Contains(log.line("forced unlock"), want) {
			t.Errorf("no %s in %s", want, log.line("forced unlock"))
		}
	}
	other.expect("UNLOCK nothing FORCE", ":0\r\n")
	if log.count("released=false") != 1 {
		t.Error("no line of a FORCE that released nothing")
	}
	time.Sleep(100 * time.Millisecond)
	if n := log.count("waiting long"); n != 1 {
		t.Errorf("%d lines for one wait", n)
	}
}

// A crowd that waits long doesn't fill the log.
func TestSlowWaitLinesAreBounded(t *testing.T) {
	server, _ := startBoth(t)
	log := &lockedLog{}
	p := startProxy(t, server.URL(), func(cfg *proxy.Config) {
		cfg.Locks.SlowWait = 100 * time.Millisecond
		cfg.Logger = hclog.New(&hclog.LoggerOptions{Output: log, Level: hclog.Info})
	})
	dial(t, p.addr).lock("a 30")
	for range 60 {
		dial(t, p.addr).send("LOCK a 30 WAIT 20")
	}
	eventually(t, 5*time.Second, "60 waiters", func() bool { return p.server.Stats().Locks.Waiters == 60 })
	time.Sleep(150 * time.Millisecond)
	if n := log.count("waiting long"); n < 1 || n > 30 {
		t.Errorf("%d lines for 60 waiters", n)
	}
}

func TestStats(t *testing.T) {
	_, p := startBoth(t)
	c := dial(t, p.addr)
	for range 100 {
		c.send("SET k 1", "GET k")
		c.reply()
		c.reply()
	}
	c.lock("s 0.2")
	c.expect("LOCK s 5 WAIT 0.01", "$-1\r\n")
	holder := dial(t, p.addr)
	holder.lock("gone 5 SESSION")
	holder.Close()
	forced := dial(t, p.addr)
	forced.lock("f 1 SESSION")
	c.expect("UNLOCK f FORCE", ":1\r\n")
	forced.closed() // RESP2 is told of the loss so
	first, second := dial(t, p.addr), dial(t, p.addr)
	token := first.lock("h 5")
	second.send("LOCK h 5 WAIT 5")
	eventually(t, 2*time.Second, "a waiter", func() bool { return p.server.Stats().Locks.Waiters == 1 })
	first.expect(unlock("h", token), ":1\r\n")
	second.reply()
	eventually(t, 5*time.Second, "the expiry", func() bool { return p.server.Stats().Locks.Expired == 1 })
	st := p.server.Stats()
	l := st.Locks
	if l.Acquired != 5 || l.Handed != 1 || l.Overtime != 1 || l.Disconnect != 1 || l.Forced != 1 || l.Lost != 1 || l.Unlocked != 1 || l.Holding != 1 {
		t.Errorf("locks: %+v", l)
	}
	if st.Commands[proxy.Relayed] != 200 || st.Accepted != 5 || st.Clients != 3 {
		t.Errorf("%+v", st)
	}
	up := st.Connections
	if up.Homes != 3 || st.Connects != 5 || dedicated && up.Lanes != 0 || up.Lanes > 1 {
		t.Errorf("%+v, %d connects", up, st.Connects)
	}
	if st.BytesOut < 100*10 || st.BytesIn < 100*40 {
		t.Errorf("%d bytes in, %d out", st.BytesIn, st.BytesOut)
	}
}

// A lock that was taken and given back since no replica has it was neither acquired nor released.
func TestStatsOfUndoneLock(t *testing.T) {
	server, _ := startBoth(t)
	p := startProxy(t, server.URL(), func(cfg *proxy.Config) {
		cfg.Locks.MinReplicas, cfg.Locks.ReplicaTimeout = 1, 50*time.Millisecond
	})
	dial(t, p.addr).expect("LOCK a 10", "-NOREPLICAS…")
	if l := p.server.Stats().Locks; l.Acquired != 0 || l.Unlocked != 0 || l.Disconnect != 0 || l.Failed != 1 || l.Holding != 0 {
		t.Errorf("%+v", l)
	}
}
