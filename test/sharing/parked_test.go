package sharing_test

// An event loop reads the clients of parked sessions. It
// notices everything that ends or wakes them.

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/wire"
)

// parked returns a client whose session is parked: it parks once it has been answered by a lane.
func parked(t *testing.T, p *proxytest.Proxy) *proxytest.Conn {
	t.Helper()
	c := proxytest.Dial(t, p.Addr)
	awaitParked(t, c)
	return c
}

func awaitParked(t *testing.T, c *proxytest.Conn) {
	t.Helper()
	for range 3 {
		c.Expect("PING", "+PONG\r\n")
	}
	testwait.Until(t, "no session has a goroutine", func() bool {
		stacks := make([]byte, 8<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		return !bytes.Contains(stacks, []byte("proxy.(*session).Resume("))
	})
}

// The proxy notices a client that goes while its session is parked, in whatever way it goes, and
// answers its requests first.
func TestParkedClientGoes(t *testing.T) {
	server := testredis.Start(t)
	p := proxytest.StartBy(t, testredis.TCP, server.URL(), nil)
	gone := func() bool { return p.Server.Stats().Clients == 0 }
	for _, way := range []string{"FIN", "reset", "half", "after a request",
		"after half a request"} {
		c := parked(t, p)
		conn := c.Conn.(*net.TCPConn)
		switch way {
		case "reset":
			conn.SetLinger(0)
			conn.Close()
		case "half", "after a request", "after half a request":
			want := ""
			if way != "half" {
				c.Send("ECHO a", "ECHO b")
				want = "$1\r\na\r\n$1\r\nb\r\n"
			}
			if way == "after half a request" {
				c.WriteRaw("*2\r\n$4\r\nECHO\r\n$5\r\nhel")
			}
			conn.CloseWrite()
			c.SetReadDeadline(testwait.Deadline())
			if got, err := io.ReadAll(c.In); string(got) != want || err != nil {
				t.Errorf("%s: %q, %v", way, got, err)
			}
		default:
			conn.Close()
		}
		testwait.Until(t, "the proxy notices a client that went: "+way, gone)
	}
}

// A parked session that the proxy itself closes ends, and releases its locks: here because one of
// its session locks is lost.
func TestLockLostWhileParked(t *testing.T) {
	server := testredis.Start(t)
	p := proxytest.StartBy(t, testredis.TCP, server.URL(), nil)
	c := proxytest.Dial(t, p.Addr)
	c.Lock("lost 600 SESSION")
	c.Lock("kept 600 SESSION")
	awaitParked(t, c)
	proxytest.GoRedis(t, server.Addr()).Del(proxytest.Ctx, "lost")
	c.Closed()
	testwait.Until(t, "the session ends", func() bool {
		return p.Server.Stats().Clients == 0
	})
	other := proxytest.Dial(t, p.Addr)
	other.Lock("kept 600")
}

// Shutdown waits no longer for parked sessions than for
// others that ask nothing, and Close not at all.
func TestShutdownWhileParked(t *testing.T) {
	for _, way := range []string{"Shutdown", "Close"} {
		server := testredis.Start(t)
		p := proxytest.StartBy(t, testredis.TCP, server.URL(), nil)
		var clients []*proxytest.Conn
		for range 20 {
			clients = append(clients, parked(t, p))
		}
		if way == "Close" {
			p.Server.Close()
		} else if err := p.Server.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		for _, c := range clients {
			c.Closed()
		}
	}
}

// An urgent byte, at which every read stops, stops nothing.
func TestUrgentByte(t *testing.T) {
	server := testredis.Start(t)
	p := proxytest.StartBy(t, testredis.TCP, server.URL(), nil)
	for range 10 {
		c := parked(t, p)
		raw, err := c.Conn.(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		raw.Control(func(fd uintptr) { // the last byte is urgent
			request := append(wire.Append(nil, "ECHO", "a"), '!')
			err = syscall.Sendto(int(fd), request, syscall.MSG_OOB, nil)
		})
		if err != nil {
			t.Fatal(err)
		}
		c.Send("ECHO b")
		for _, want := range []string{"$1\r\na\r\n", "$1\r\nb\r\n"} {
			if got := c.Reply(); got != want {
				t.Fatalf("%q, want %q", got, want)
			}
		}
		c.Close() // an urgent byte leaves it with a goroutine
	}
}

// Requests that the loop relays, and requests that it leaves to the session's goroutine, are
// answered in the order in which they were sent, however they are cut into pieces.
func TestParkedOrder(t *testing.T) {
	server := testredis.Start(t)
	p := proxytest.StartBy(t, testredis.TCP, server.URL(), nil)
	var all sync.WaitGroup
	for i := range 16 {
		c := proxytest.Dial(t, p.Addr)
		all.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 7))
			for round := range 20 {
				var raw, want []byte
				for k := range 1 + rng.IntN(40) {
					word := fmt.Sprintf("%d-%d-%s", round, k, strings.Repeat("x", rng.IntN(100)))
					bulk := fmt.Appendf(nil, "$%d\r\n%s\r\n", len(word), word)
					switch rng.IntN(12) {
					case 0:
						raw = append(raw, "ECHO "+word+"\r\n"...)
						want = append(want, bulk...)
					case 1:
						raw = wire.Append(
							wire.Append(wire.Append(raw, "MULTI"), "ECHO", word),
							"EXEC")
						want = append(append(want, "+OK\r\n+QUEUED\r\n*1\r\n"...), bulk...)
					case 2:
						raw = wire.Append(raw, "UNLOCK", fmt.Sprintf("none-%d", i), "1")
						want = append(want, ":0\r\n"...)
					case 3:
						raw = wire.Append(raw, "SELECT", fmt.Sprint(rng.IntN(3)))
						want = append(want, "+OK\r\n"...)
					default:
						raw = wire.Append(raw, "ECHO", word)
						want = append(want, bulk...)
					}
				}
				for len(raw) > 0 {
					n := min(len(raw), 1+rng.IntN(3000))
					if _, err := c.Write(raw[:n]); err != nil {
						t.Error(err)
						return
					}
					if raw = raw[n:]; rng.IntN(3) == 0 {
						runtime.Gosched()
					}
				}
				got := make([]byte, len(want))
				c.SetReadDeadline(testwait.Deadline())
				if _, err := io.ReadFull(c.In, got); err != nil || string(got) != string(want) {
					t.Errorf("client %d, round %d: %v\ngot  %q\nwant %q", i, round, err, got, want)
					return
				}
			}
		})
	}
	all.Wait()
}
