//go:build memory

package relay_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
)

// hostileCrowd is what the clients of a crowd do. Each does
// one thing and closes, most of them without goodbye.
var hostileCrowd = []struct {
	name string
	do   func(nc *net.TCPConn, in *bufio.Reader, i int) error
}{
	{"connect and close", func(nc *net.TCPConn, in *bufio.Reader, i int) error { return nil }},
	{"half a command", func(nc *net.TCPConn, in *bufio.Reader, i int) error {
		_, err := io.WriteString(nc, "*2\r\n$3\r\nGET\r\n$100\r\nk")
		return err
	}},
	{"half a large command, then a reset", func(nc *net.TCPConn, in *bufio.Reader, i int) error {
		nc.SetLinger(0)
		fmt.Fprintf(nc, "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$%d\r\n", 10<<20)
		nc.Write(make([]byte, 100<<10))
		return nil
	}},
	{"block, then vanish", func(nc *net.TCPConn, in *bufio.Reader, i int) error {
		_, err := io.WriteString(nc, "BLPOP never:pushed 0\r\n")
		return err
	}},
	{"block, then a reset", func(nc *net.TCPConn, in *bufio.Reader, i int) error {
		nc.SetLinger(0)
		return hostileExchange(nc, in, "PING\r\nBLPOP never:pushed 0\r\n", "+PONG")
	}},
	{"subscribe", func(nc *net.TCPConn, in *bufio.Reader, i int) error {
		return hostileExchange(nc, in, "SUBSCRIBE a\r\n", "*3", "$9", "subscribe", "$1", "a", ":1")
	}},
	{"pipeline", func(nc *net.TCPConn, in *bufio.Reader, i int) error {
		want := make([]string, 50)
		for i := range want {
			want[i] = ":"
		}
		return hostileExchange(nc, in, strings.Repeat("INCR counter\r\n", 50), want...)
	}},
	{"pipeline, unread", func(nc *net.TCPConn, in *bufio.Reader, i int) error {
		_, err := io.WriteString(nc, strings.Repeat("LRANGE list 0 -1\r\n", 200))
		return err
	}},
	{"lock and unlock", func(nc *net.TCPConn, in *bufio.Reader, i int) error {
		key := fmt.Sprintf("lock:%d", i)
		return hostileExchange(nc, in, "LOCK "+key+" 300\r\nUNLOCK "+key+"\r\n", ":", ":1")
	}},
	{"lock, then vanish", func(nc *net.TCPConn, in *bufio.Reader, i int) error {
		_, err := fmt.Fprintf(nc, "LOCK contended:%d 600\r\n", i/28) // for every other one
		return err
	}},
	{"wait for a lock, then vanish", func(nc *net.TCPConn, in *bufio.Reader, i int) error {
		_, err := io.WriteString(nc, "LOCK waited:for 600 SESSION\r\nLOCK waited:for 600 WAIT 0\r\n")
		return err
	}},
	{"within MULTI", func(nc *net.TCPConn, in *bufio.Reader, i int) error {
		return hostileExchange(nc, in, "MULTI\r\nINCR counter\r\n", "+OK", "+QUEUED")
	}},
	{"bad protocol", func(nc *net.TCPConn, in *bufio.Reader, i int) error {
		return hostileExchange(nc, in, "*1\r\n$x\r\n", "-ERR Protocol error: invalid bulk length")
	}},
	{"QUIT", func(nc *net.TCPConn, in *bufio.Reader, i int) error {
		return hostileExchange(nc, in, "QUIT\r\n", "+OK")
	}},
}

// 1,500 clients come and go, and leave nothing behind.
func TestHostileCrowd(t *testing.T) {
	redis := testredis.Start(t)
	p := proxytest.StartBy(t, testredis.TCP, redis.URL(), nil)
	first := proxytest.Dial(t, p.Addr)
	first.Expect("RPUSH list "+strings.Repeat("element ", 1000), ":1000\r\n")
	first.Close()
	come := func(clients, atOnce int) {
		t.Helper()
		var failures atomic.Int64
		var next atomic.Int64
		var crowd sync.WaitGroup
		for range atOnce {
			crowd.Go(func() {
				for i := next.Add(1) - 1; int(i) < clients; i = next.Add(1) - 1 {
					client := hostileCrowd[int(i)%len(hostileCrowd)]
					nc, err := proxytest.TryDial(p.Addr)
					if err == nil {
						nc.SetDeadline(testwait.Deadline())
						err = client.do(nc.(*net.TCPConn), bufio.NewReader(nc), int(i))
						nc.Close()
					}
					if err != nil && failures.Add(1) < 10 {
						t.Errorf("%s: %v", client.name, err)
					}
				}
			})
		}
		crowd.Wait()
	}
	come(300, 150) // resources that the proxy makes once and keeps exist from now on
	left := func() bool {
		st := p.Server.Stats()
		return st.Clients == 0 && st.Connections.Homes == 0
	}
	testwait.Until(t, "all have left", left)
	goroutines, files, connections := runtime.NumGoroutine(), proxytest.OpenFiles(t),
		hostileConnections(t, redis)

	watch := watchHostile(t, p.Addr)
	come(1500, 150)
	watch.end(t)

	// It keeps a few connections for its own requests, as many as it needed at once, and a few idle
	// lanes, served by two goroutines. Whether there was ever use for one is chance.
	const kept, lanes = 5, 8
	if !testwait.Holds(func() bool {
		return left() && runtime.NumGoroutine() <= goroutines+2*lanes &&
			proxytest.OpenFiles(t) <= files+kept+lanes &&
			hostileConnections(t, redis) <= connections+kept+lanes
	}) {
		pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
		t.Fatalf("%d goroutines, %d files, %d upstream connections; before: %d, %d, %d",
			runtime.NumGoroutine(), proxytest.OpenFiles(t), hostileConnections(t, redis),
			goroutines, files, connections)
	}
}

// hostileConnections is how many clients redis has, this one included.
func hostileConnections(t *testing.T, redis *testredis.Server) int {
	t.Helper()
	info := hostileTalk(t, redis.Addr(), []byte("INFO clients\r\nQUIT\r\n"))
	var n int
	_, text, _ := strings.Cut(info, "connected_clients:")
	if _, err := fmt.Sscan(text, &n); err != nil {
		t.Fatalf("INFO clients: %q", info)
	}
	return n
}
