package sharing_test

import (
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/proxy"
)

// readBig reads that many replies to GET big.
func readBig(t *testing.T, c *proxytest.Conn, replies int) {
	t.Helper()
	want := "$61440\r\n" + strings.Repeat("x", 60<<10) + "\r\n"
	got := make([]byte, len(want))
	c.SetReadDeadline(testwait.Deadline())
	for i := range replies {
		if n, err := io.ReadFull(c.In, got); err != nil || string(got) != want {
			t.Fatalf("reply %d: %d bytes, %v: %.20q", i, n, err, got)
		}
	}
}

// Clients that together leave too much unread are closed, and the log says so; others are served.
func TestUnreadIsBoundedForAll(t *testing.T) {
	server := testredis.Start(t)
	proxytest.Dial(t, server.Addr()).Expect("SET big "+strings.Repeat("x", 60<<10), "+OK\r\n")
	var log testredis.LogBuffer
	p := proxytest.StartBy(t, testredis.TCP, server.URL(), func(cfg *proxy.Config) {
		cfg.Dedicated, cfg.MaxUnread = false, 2<<20
		cfg.Logger = hclog.New(&hclog.LoggerOptions{Output: &log})
	})
	var slow []*proxytest.Conn
	for range 4 {
		c := proxytest.SharedClient(t, p.Addr)
		c.WriteRaw(strings.Repeat("GET big\r\n", 1000)) // 60 MB of replies
		slow = append(slow, c)
	}
	testwait.Until(t, "a client is closed, and the log says so", func() bool {
		return strings.Contains(log.String(),
			"a client was disconnected: it left too many replies unread: client="+
				slow[0].LocalAddr().String()[:9])
	})
	other := proxytest.SharedClient(t, p.Addr)
	other.Expect("SET a b", "+OK\r\n")
	for _, c := range slow {
		c.Close()
	}
	// Their room is freed: a client that reads late is served.
	testwait.Until(t, "the slow clients are gone", func() bool {
		return p.Server.Stats().Clients == 1
	})
	c := proxytest.SharedClient(t, p.Addr)
	c.WriteRaw(strings.Repeat("GET big\r\n", 20))
	testwait.Until(t, "there is something to read", c.Arrived)
	readBig(t, c, 20)
}

// A proxy that can't make files serves clients that read late as far as its memory for them goes.
func TestUnreadWithoutFiles(t *testing.T) {
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "not there"))
	server := testredis.Start(t)
	proxytest.Dial(t, server.Addr()).Expect("SET big "+strings.Repeat("x", 60<<10), "+OK\r\n")
	p := sharing(t, server, 1)
	c := proxytest.SharedClient(t, p.Addr)
	c.WriteRaw(strings.Repeat("GET big\r\n", 300))
	testwait.Until(t, "there is something to read", c.Arrived)
	other := proxytest.SharedClient(t, p.Addr)
	other.Expect("SET a b", "+OK\r\n")
	readBig(t, c, 300)
}
