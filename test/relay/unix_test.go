package relay_test

import (
	"bufio"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
)

func TestUnixSocketsOnBothSides(t *testing.T) {
	dir := t.TempDir()
	redisPath, path := filepath.Join(dir, "redis.sock"), filepath.Join(dir, "lockproxy.sock")
	server := testredis.Start(t, "--unixsocket", redisPath, "--unixsocketperm", "700",
		"--requirepass", "secret")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	p := proxytest.StartOn(t, ln, "unix://:secret@"+redisPath+"?db=3", nil)
	connect := func() *proxytest.Conn {
		nc, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { nc.Close() })
		return &proxytest.Conn{T: t, Conn: nc, In: bufio.NewReader(nc)}
	}
	c, other := connect(), connect()
	c.Expect("SET a 1", "+OK\r\n")
	token := c.Lock("job 600")
	other.Expect("LOCK job 600", "$-1\r\n")
	if got := other.Do("LOCKINFO job"); !strings.Contains(got, "$6\r\nclient\r\n$4\r\nunix\r\n") {
		t.Errorf("LOCKINFO: %q", got)
	}
	other.Send("LOCK job 600 WAIT 0")
	testwait.Until(t, "it waits", func() bool { return p.Server.Stats().Locks.Waiters == 1 })
	c.Expect(proxytest.Unlock("job", token), ":1\r\n")
	if got := other.Reply(); !strings.HasPrefix(got, ":") {
		t.Errorf("LOCK WAIT: %q", got)
	}
	direct := proxytest.Dial(t, server.Addr())
	direct.Do("AUTH secret")
	direct.Do("SELECT 3")
	direct.Expect("GET a", "$1\r\n1\r\n")

	leaving := connect()
	leaving.Send("BLPOP list 0")
	leavesBlocked(t, leaving, direct)

	server.Kill()
	// A shared connection may not have heard yet of its end: the first is told that it was lost.
	testwait.Until(t, "clients are told that Redis cannot be reached", func() bool {
		return strings.HasPrefix(connect().Do("PING"),
			"-UPSTREAM cannot reach "+redisPath+": nothing was sent, try again")
	})
}
