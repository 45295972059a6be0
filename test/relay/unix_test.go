package relay_test

import (
	"bufio"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/proxytest"
	"lockproxy/internal/testredis"
	"lockproxy/internal/upstream"
	"lockproxy/lockcmd"
	"lockproxy/proxy"
)

// tpServe serves on ln until the test ends.
func tpServe(t *testing.T, ln net.Listener, url string) {
	t.Helper()
	redis, err := upstream.Parse(url)
	if err != nil {
		t.Fatal(err)
	}
	server := proxy.New(proxy.Config{Upstream: redis, Locks: lockcmd.Config{MaxTimeout: time.Hour,
		FenceRetention: time.Minute}})
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }() // ends by Close; waited for in Cleanup
	t.Cleanup(func() {
		server.Close()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
}

func TestUnixSocketsOnBothSides(t *testing.T) {
	dir := t.TempDir()
	redisPath, path := filepath.Join(dir, "redis.sock"), filepath.Join(dir, "lockproxy.sock")
	server := testredis.Start(t, "--unixsocket", redisPath, "--unixsocketperm", "700",
		"--requirepass", "secret")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	tpServe(t, ln, "unix://:secret@"+redisPath+"?db=3")
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
	token := c.Lock("job 30")
	other.Expect("LOCK job 30", "$-1\r\n")
	if got := other.Do("LOCKINFO job"); !strings.Contains(got, "$6\r\nclient\r\n$4\r\nunix\r\n") {
		t.Errorf("LOCKINFO: %q", got)
	}
	other.Send("LOCK job 30 WAIT 5")
	time.Sleep(50 * time.Millisecond)
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
	proxytest.Eventually(t, 2*time.Second, "BLPOP blocks", func() bool {
		return strings.Contains(direct.Do("INFO clients"), "blocked_clients:1")
	})
	leaving.Close()
	proxytest.Eventually(t, 2*time.Second, "BLPOP ends with its client", func() bool {
		return strings.Contains(direct.Do("INFO clients"), "blocked_clients:0")
	})

	server.Kill()
	connect().Expect("PING", "-UPSTREAM cannot reach "+redisPath+": nothing was sent, try again…")
}
