//go:build memory

package relay_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
)

// Many clients with large unfinished requests take a bounded amount of memory. Requests that can be
// streamed are served when they are complete; of those that must be held whole, some are refused.
func TestHostileUnfinished(t *testing.T) {
	t.Parallel()
	bin, redis := proxytest.Binary(t), testredis.Start(t)
	for _, c := range []struct {
		name        string
		clients     int
		head, tail  string
		want        string // of each client's reply
		refusedWith string
	}{
		{"SET of 60 KB", 3000, "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$61440\r\n" +
			strings.Repeat("x", 61000),
			strings.Repeat("x", 440) + "\r\n", "+OK\r\n", ""},
		{"LOCK of 900 KB", 300, "*3\r\n$4\r\nLOCK\r\n$921600\r\n" + strings.Repeat("x", 900_000),
			strings.Repeat("x", 21_600) + "\r\n$2\r\nno\r\n", "-ERR timeout is not a float",
			"-ERR too many clients are sending large requests"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := startHostileProxy(t, bin, redis)
			most := p.memory("VmHWM")
			var left []*net.TCPConn
			for range c.clients {
				nc := hostileDial(t, p.addr)
				nc.SetDeadline(testwait.Deadline())
				fmt.Fprint(nc, "PING\r\n")
				bufio.NewReaderSize(nc, 16).ReadString('\n')
				io.WriteString(nc, c.head) // fails if it has been refused
				left = append(left, nc)
			}
			p.watch().end(t)
			if grown := p.memory("VmHWM") - most; grown > 280<<20 {
				t.Errorf("%d clients took %d MB", c.clients, grown>>20)
			} else {
				t.Logf("%d clients took %d MB", c.clients, grown>>20)
			}
			served, refused := 0, 0
			for i, nc := range left {
				io.WriteString(nc, c.tail)
				got, err := bufio.NewReader(nc).ReadString('\n')
				switch {
				case strings.HasPrefix(got, c.want):
					served++
				case c.refusedWith != "" && (strings.HasPrefix(got, c.refusedWith) || got == "" &&
					err != nil):
					refused++
				default:
					t.Fatalf("client %d is answered %q, %v", i, got, err)
				}
				nc.Close()
			}
			t.Logf("%d served, %d refused", served, refused)
			if served < 50 {
				t.Errorf("%d served, %d refused", served, refused)
			}
		})
	}
}

// Clients that send large, many or unfinished requests instead of logging in don't cost much.
func TestHostileBeforeLogin(t *testing.T) {
	server := testredis.Start(t, "--requirepass", "secret")
	cluster := testredis.StartCluster(t, 3, 0, "--requirepass", "secret")
	for name, up := range map[string]struct {
		url    string
		server *testredis.Server
	}{
		"server":  {server.URL(), server},
		"cluster": {cluster.URL(), cluster.Nodes[0]},
	} {
		for what, request := range map[string]string{
			"too large": "*2\r\n$4\r\nAUTH\r\n$921600\r\n" + strings.Repeat("x", 900_000),
			"unfinished": "*10\r\n$3\r\nDEL\r\n" +
				strings.Repeat("$16384\r\n"+strings.Repeat("x", 16384)+"\r\n", 8) + "$16384\r\n",
			"many": strings.Repeat("*2\r\n$3\r\nGET\r\n$1\r\nx\r\n", 200),
			"deep": strings.Repeat("*1\r\n", 2000),
		} {
			t.Run(name+", "+what, func(t *testing.T) {
				p := startHostileProxyAt(t, proxytest.Binary(t), up.server, up.url)
				most := p.memory("VmHWM")
				var writing sync.WaitGroup
				var clients []net.Conn
				for range 500 {
					nc := hostileDial(t, p.addr)
					clients = append(clients, nc)
					writing.Go(func() { io.WriteString(nc, request) }) // ends with nc at the latest
				}
				c := proxytest.Dial(t, p.addr)
				c.ExpectInTime("AUTH secret", "+OK\r\n")
				// Redis allows each ten arguments of 16 KB. In front of a cluster the proxy keeps
				// them until it knows their node.
				if grown := p.memory("VmHWM") - most; grown > 192<<20 {
					t.Errorf("500 clients that have not logged in took %d MB", grown>>20)
				}
				for _, nc := range clients {
					nc.Close()
				}
				writing.Wait()
			})
		}
	}
}
