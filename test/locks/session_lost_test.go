package locks_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"lockproxy/internal/proxytest"
	"lockproxy/internal/resp"
	"lockproxy/internal/testredis"
	"lockproxy/proxy"
)

// wantLost fails unless the client of a session lock is told soon that the lock is lost, and its
// connection closes.
func wantLost(t *testing.T, c *proxytest.Conn, proto, key string, token int64) {
	t.Helper()
	if proto == "3" {
		want := fmt.Sprintf(">3\r\n$8\r\nlocklost\r\n%s:%d\r\n", proxytest.Bulk(key), token)
		if got, err := c.TryReply(); got != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
	c.Closed()
}

// A lock whose name is longer than what the proxy reads of a change is not tracked, and keeps no
// other from being so.
func TestSessionLockDeletedNextToALongName(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := proxytest.Start(t, server.URL(), func(cfg *proxy.Config) { cfg.ClientBuffer = 4 << 20 })
	long, c := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	name := strings.Repeat("n", 2<<20)
	long.WriteRaw(string(resp.AppendCommand(nil, "LOCK", name, "30", "SESSION")))
	proxytest.Token(t, long.Reply())
	time.Sleep(200 * time.Millisecond) // until it would be tracked
	server.Ask("PEXPIRE", name, "30000")
	c.Do("HELLO 3")
	token := c.Lock("job 300 SESSION")
	time.Sleep(200 * time.Millisecond) // until it is tracked
	server.Ask("DEL", "job")
	wantLost(t, c, "3", "job", token)
}

func TestSessionLockForcedElsewhereInACluster(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, 3, 0)
	p, q := proxytest.Start(t, cluster.URL(), nil), proxytest.Start(t, cluster.URL(), nil)
	other := proxytest.Dial(t, q.Addr)
	var clients []*proxytest.Conn
	var tokens []int64
	for i := range 12 {
		c := proxytest.Dial(t, p.Addr)
		tokens = append(tokens, c.Lock(fmt.Sprintf("job-%d 60 SESSION", i)))
		clients = append(clients, c)
	}
	time.Sleep(500 * time.Millisecond) // until the proxy listens
	for i, c := range clients {
		other.Expect(fmt.Sprintf("UNLOCK job-%d FORCE", i), ":1\r\n")
		wantLost(t, c, "2", "", tokens[i])
	}
}

// A user that may not subscribe hears of it at the next renewal.
func TestSessionLockWithoutTheChannel(t *testing.T) {
	t.Parallel()
	server, p := proxytest.StartBoth(t)
	q := proxytest.Start(t, server.URL(), nil)
	other := proxytest.Dial(t, q.Addr)
	other.Do("ACL SETUSER quiet on nopass ~* +@all resetchannels")
	c := proxytest.Dial(t, p.Addr)
	c.Expect("HELLO 3 AUTH quiet x", "%…")
	token := c.Lock("job 1.5 SESSION")
	time.Sleep(100 * time.Millisecond)
	other.Expect("UNLOCK job FORCE", ":1\r\n")
	wantLost(t, c, "3", "job", token)
}

// The log says why a session lock was lost.
func TestSessionLockLossIsLogged(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	var log bytes.Buffer
	var mu sync.Mutex
	logged := func(cfg *proxy.Config) {
		cfg.Logger = hclog.New(&hclog.LoggerOptions{Output: &log, Mutex: &mu})
	}
	p, q := proxytest.Start(t, server.URL(), logged), proxytest.Start(t, server.URL(), nil)
	other, elsewhere := proxytest.Dial(t, p.Addr), proxytest.Dial(t, q.Addr)
	// CLIENT TRACKING would sometimes tell first, and knows no reason.
	other.Expect("ACL SETUSER default -client|tracking", "+OK\r\n")
	for _, c := range []struct {
		by      *proxytest.Conn
		command string
		reason  string
	}{
		{other, "UNLOCK job FORCE", `reason="forced by ` + other.LocalAddr().String() + `"`},
		{other, "UNLOCK job %d", `reason="released with its token by `},
		{other, "DEL job", `reason="DEL by ` + other.LocalAddr().String() + `"`},
		{elsewhere, "UNLOCK job FORCE", `reason="released through another proxy"`},
		{elsewhere, "SET job hello", `reason="its key was overwritten"`},
		{elsewhere, "DEL job", `reason="its token does not hold it: `},
	} {
		holder := proxytest.Dial(t, p.Addr)
		token := holder.Lock("job 1.5 SESSION")
		time.Sleep(100 * time.Millisecond)
		if strings.Contains(c.command, "%d") {
			c.command = fmt.Sprintf(c.command, token)
		}
		c.by.Do(c.command)
		holder.Closed()
		mu.Lock()
		lines := strings.Split(log.String(), "\n")
		log.Reset()
		mu.Unlock()
		if !slices.ContainsFunc(lines, func(line string) bool {
			return strings.Contains(line, "session lock lost: key=job") &&
				strings.Contains(line, fmt.Sprint("token=", token)) &&
				strings.Contains(line, c.reason)
		}) {
			t.Errorf("%s: the log says %q, want %s", c.command, lines, c.reason)
		}
		other.Do("DEL job")
	}
}

// When a token no longer holds its lock, all sessions of its owner are told, whichever learns it.
func TestSessionsOfOneOwnerLoseTogether(t *testing.T) {
	t.Parallel()
	for _, tracked := range []bool{true, false} {
		for _, mode := range []string{"", " SHARED"} {
			server, p := proxytest.StartBoth(t)
			direct := proxytest.GoRedis(t, server.Addr())
			if !tracked {
				setUntracked(direct)
			}
			one, two := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
			token := one.Lock("job 1.5" + mode + " SESSION OWNER me")
			two.Lock("job 60" + mode + " SESSION OWNER me")
			if tracked {
				awaitTracking(t, direct, "1")
			}
			direct.Del(proxytest.Ctx, "job")
			wantLost(t, one, "2", "job", token)
			wantLost(t, two, "2", "job", token)
		}
	}
}

// A lock that goes to another client of the proxy was lost by the one that had it.
func TestSessionLockTakenByAnother(t *testing.T) {
	t.Parallel()
	server, p := proxytest.StartBoth(t)
	direct := proxytest.GoRedis(t, server.Addr())
	setUntracked(direct)
	c := proxytest.Dial(t, p.Addr)
	token := c.Lock("job 60 SESSION")
	time.Sleep(200 * time.Millisecond) // until the proxy listens
	direct.Del(proxytest.Ctx, "job")
	proxytest.Dial(t, p.Addr).Lock("job 60")
	wantLost(t, c, "2", "job", token)
}
