//go:build memory

package relay_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/wire"
	"lockproxy/proxy"
)

// pipeline is what a client writes before it reads anything:
// a number of rounds, and the replies of each.
type pipeline struct {
	name   string
	rounds int
	round  func(i int) []string // words of commands, separated by blanks
	want   func(i int) string   // "" if unknown beforehand: then replies are counted
}

var pipelines = []pipeline{
	{"ECHO", 5000, func(i int) []string {
		return []string{"ECHO " + echoed(i)}
	}, func(i int) string { return wire.Bulk(echoed(i)) }},
	{"GET", 5000, func(i int) []string {
		return []string{"GET big"}
	}, func(i int) string { return wire.Bulk(longWord) }},
	{"transactions", 3000, func(i int) []string {
		return []string{"MULTI", "ECHO " + echoed(i), "EXEC"}
	},
		func(i int) string { return "+OK\r\n+QUEUED\r\n*1\r\n" + wire.Bulk(echoed(i)) }},
	{"databases", 3000, func(i int) []string {
		return []string{"SELECT 1", "ECHO " + echoed(i), "SELECT 0"}
	},
		func(i int) string { return "+OK\r\n" + wire.Bulk(echoed(i)) + "+OK\r\n" }},
	{"locks", 200, func(i int) []string {
		return append([]string{fmt.Sprintf("LOCK l%d 600", i), fmt.Sprintf("LOCKINFO l%d", i)},
			slices.Repeat([]string{"ECHO " + echoed(i)}, 25)...)
	}, nil},
}

// A client that writes tens of megabytes of requests before it reads a
// reply is served as by Redis. Others are served meanwhile, on the
// same upstream connection too, and the proxy's memory stays small.
func TestPipelineWrittenBeforeItIsRead(t *testing.T) {
	for _, kind := range []string{"tcp", "unix", "tls"} {
		for _, dedicated := range []bool{false, true} {
			for _, pl := range pipelines {
				t.Run(fmt.Sprintf("%s/dedicated=%v/%s", kind, dedicated, pl.name),
					func(t *testing.T) {
						server := testredis.Start(t)
						proxytest.Dial(t, server.Addr()).Expect("SET big "+longWord, "+OK\r\n")
						connect := unreadProxy(t, server, kind, dedicated)
						c, other := connect(), connect()
						for range 2 { // the second goes by a lane, if there are any
							c.Expect("PING", "+PONG\r\n")
							other.Expect("PING", "+PONG\r\n")
						}
						before := heapBytes()
						pl.write(t, c)
						if grown := heapBytes() - before; grown > 24<<20 {
							t.Errorf("%d MB are held for a client that doesn't read", grown>>20)
						}
						for range 200 {
							other.Expect("PING", "+PONG\r\n")
						}
						pl.read(t, c)
						c.Expect("PING", "+PONG\r\n")
					})
			}
		}
	}
}

// unreadProxy starts a proxy that is reached in one of three ways, and returns how.
func unreadProxy(t *testing.T, server *testredis.Server, kind string,
	dedicated bool) (connect func() *proxytest.Conn) {
	change := func(cfg *proxy.Config) { cfg.Dedicated, cfg.UpstreamConns = dedicated, 1 }
	switch kind {
	case "tls":
		p, trusting := startTLS(t, server.URL(), change)
		return func() *proxytest.Conn { return dialTLS(t, p.Addr, trusting) }
	case "unix":
		ln, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
		if err != nil {
			t.Fatal(err)
		}
		proxytest.StartOn(t, ln, server.URL(), change)
		return func() *proxytest.Conn {
			nc, err := net.Dial("unix", ln.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { nc.Close() })
			return proxytest.Dialed(t, nc)
		}
	}
	p := proxytest.Start(t, server.URL(), change)
	return func() *proxytest.Conn { return proxytest.Dial(t, p.Addr) }
}

// write writes all rounds and reads nothing.
func (pl *pipeline) write(t *testing.T, c *proxytest.Conn) {
	t.Helper()
	c.SetWriteDeadline(testwait.Deadline())
	out := bufio.NewWriterSize(c.Conn, 64<<10)
	var raw []byte
	for i := range pl.rounds {
		raw = raw[:0]
		for _, command := range pl.round(i) {
			raw = wire.Append(raw, strings.Split(command, " ")...)
		}
		if _, err := out.Write(raw); err != nil {
			t.Fatalf("the proxy reads no more after %d of %d rounds: %v", i, pl.rounds, err)
		}
	}
	if err := out.Flush(); err != nil {
		t.Fatalf("the proxy doesn't read the end: %v", err)
	}
	c.SetWriteDeadline(time.Time{})
}

// read reads the replies of all rounds.
func (pl *pipeline) read(t *testing.T, c *proxytest.Conn) {
	t.Helper()
	c.SetReadDeadline(testwait.Deadline())
	in := bufio.NewReaderSize(c.In, 64<<10)
	for i := range pl.rounds {
		if pl.want == nil {
			for range pl.round(i) {
				if reply, err := wire.ReadReply(in, wire.RESP2); err != nil || reply[0] == '-' {
					t.Fatalf("round %d: %.100q, %v", i, reply, err)
				}
			}
			continue
		}
		want := pl.want(i)
		got := make([]byte, len(want))
		if n, err := io.ReadFull(in, got); err != nil || string(got) != want {
			t.Fatalf("round %d: %.100q, want %.100q, %v", i, got[:n], want, err)
		}
	}
	if in.Buffered() > 0 {
		t.Errorf("%d bytes more than was asked for", in.Buffered())
	}
}

func heapBytes() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
