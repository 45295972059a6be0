//go:build memory

package relay_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
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
// reply is served as by Redis, also in that some servers end such a
// connection if it has TLS. Others are served meanwhile, on the same
// upstream connection too, and the proxy's memory stays small.
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
						err := pl.write(c)
						if grown := heapBytes() - before; grown > 24<<20 {
							t.Errorf("%d MB are held for a client that doesn't read", grown>>20)
						}
						for range 200 {
							other.Expect("PING", "+PONG\r\n")
						}
						if err == nil {
							err = pl.read(c)
						}
						byTLS := strings.HasPrefix(testredis.Reach(server.URL()), "rediss:")
						switch {
						case err == nil:
							c.Expect("PING", "+PONG\r\n")
						case byTLS && testredis.EndsUnreadTLS() && errors.Is(err, errEnded):
							other.Expect("PING", "+PONG\r\n")
						default:
							t.Fatal(err)
						}
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

// errEnded says that the client was closed, or told that its own
// connection to Redis was lost.
var errEnded = errors.New("the connection has ended")

// write writes all rounds and reads nothing.
func (pl *pipeline) write(c *proxytest.Conn) error {
	c.SetWriteDeadline(testwait.Deadline())
	defer c.SetWriteDeadline(time.Time{})
	out := bufio.NewWriterSize(c.Conn, 64<<10)
	var raw []byte
	for i := range pl.rounds {
		raw = raw[:0]
		for _, command := range pl.round(i) {
			raw = wire.Append(raw, strings.Split(command, " ")...)
		}
		if _, err := out.Write(raw); err != nil {
			return writeError(i, err)
		}
	}
	if err := out.Flush(); err != nil {
		return writeError(pl.rounds, err)
	}
	return nil
}

// writeError is the outcome of a write that fails in a round.
func writeError(round int, err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("the proxy reads no more in round %d: %w", round, err)
	}
	return fmt.Errorf("%w in round %d of writing: %w", errEnded, round, err)
}

// read reads the replies of all rounds.
func (pl *pipeline) read(c *proxytest.Conn) error {
	c.SetReadDeadline(testwait.Deadline())
	in := bufio.NewReaderSize(c.In, 64<<10)
	for i := range pl.rounds {
		if pl.want == nil {
			for range pl.round(i) {
				reply, err := wire.ReadReply(in, wire.RESP2)
				if err != nil || reply[0] == '-' {
					return readError(i, string(reply), "", err)
				}
			}
			continue
		}
		want := pl.want(i)
		got := make([]byte, len(want))
		n, err := io.ReadFull(in, got)
		if err != nil || string(got) != want {
			return readError(i, string(got[:n]), want, err)
		}
	}
	if in.Buffered() > 0 {
		return fmt.Errorf("%d bytes more than was asked for", in.Buffered())
	}
	return nil
}

// readError is the outcome of a round whose replies are not those that
// were wanted.
func readError(round int, got, want string, err error) error {
	same := 0
	for same < min(len(got), len(want)) && got[same] == want[same] {
		same++
	}
	closed := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, syscall.ECONNRESET)
	if closed && same == len(got) || strings.HasPrefix(got[same:], "-UPSTREAM ") {
		return fmt.Errorf("%w in round %d: %.100q", errEnded, round, got[same:])
	}
	return fmt.Errorf("round %d: %.100q, want %.100q, %v", round, got, want, err)
}

func heapBytes() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
