package proxy

import (
	"context"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"lockproxy/internal/eventloop"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/upstream"
	"lockproxy/lockcmd"
)

// A reset within a moment of a token releases the lock, although the session's goroutine waits for
// a connection to Redis for the next request, and whoever reads the client otherwise. If a busy
// machine lets more than a moment pass between the token and the reset, the test tries again.
func TestResetWhileARequestWaitsForAConnection(t *testing.T) {
	for _, by := range []struct{ name, network, addr, header string }{
		{"a loop reads", "tcp", "127.0.0.1:0", ""},
		{"a PROXY header", "tcp", "127.0.0.1:0", "PROXY TCP4 192.0.2.1 192.0.2.2 1000 2000\r\n"},
		{"a Unix socket", "unix", filepath.Join(t.TempDir(), "s"), ""},
	} {
		t.Run(by.name, func(t *testing.T) { resetDuringDial(t, by.network, by.addr, by.header) })
	}
}

func resetDuringDial(t *testing.T, network, at, header string) {
	redis, err := upstream.Parse(testredis.Start(t).URL())
	if err != nil {
		t.Fatal(err)
	}
	var holds atomic.Bool
	dials, goOn := make(chan struct{}), make(chan struct{})
	redis.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if holds.CompareAndSwap(true, false) {
			close(dials)
			<-goOn
		}
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	cfg := Config{Upstream: redis, MaxClients: 100, UpstreamConns: 4,
		Locks: lockcmd.Config{MaxTimeout: time.Hour, FenceRetention: time.Hour}}
	if header != "" {
		cfg.ProxyProtocolFrom = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	}
	s := New(cfg)
	s.pool.Spares = 0
	ln, err := net.Listen(network, at)
	if err != nil {
		t.Fatal(err)
	}
	addr := serveOn(t, s, ln)
	next := talkBy(t, network, addr, "the next")
	next.say(header + "LOCK job 600\r\nUNLOCK job\r\nGET k")
	for _, want := range []string{":", ":1", "$-1"} {
		next.hear(want)
	}
	first := s.list()[0]
	for range 50 {
		dials, goOn = make(chan struct{}), make(chan struct{})
		dying := talkBy(t, network, addr, "the dying client")
		holds.Store(true)
		dying.say(header + "LOCK job 600\r\nBLPOP list 0")
		if conn, ok := dying.Conn.(*net.TCPConn); ok {
			dying.hear(":")
			conn.SetLinger(0)
		} // a Unix socket that closes with the token unread sends a reset
		testwait.For(t, "a connection is opened", dials)
		list := s.list()
		sess := list[slices.IndexFunc(list, func(one *session) bool { return one != first })]
		dying.Close()
		testwait.Until(t, "the reset came more than a moment ago", func() bool {
			return sess.client.reg.ClosedFor() > 2*resetWithin
		})
		close(goOn)
		testwait.Until(t, "the session ends", func() bool { return len(s.list()) == 1 })
		next.say("LOCK job 600\r\nUNLOCK job FORCE")
		got, err := next.ReadString('\n')
		if next.hear(":1"); err != nil || strings.HasPrefix(got, ":") {
			return
		}
	}
	t.Error("the lock is not released")
}

// A shutdown that begins just before a session's goroutine waits is noticed.
func TestShutdownJustBeforeAWait(t *testing.T) {
	sess, _ := unread(t, server(t, testredis.Start(t).URL()))
	sess.drain(time.Now().Add(time.Hour))
	waited := make(chan struct{})
	go func() { // ends with the wait
		defer close(waited)
		sess.x.wait()
	}()
	testwait.For(t, "the goroutine looks again", waited)
}

// A client that closes behind more than the proxy reads is noticed: the request that blocks in front
// of it takes nothing for a client that has left.
func TestGoneBehindAFullBuffer(t *testing.T) {
	sess, far := unread(t, server(t, testredis.Start(t).URL()))
	if arrives(sess, far, "BLPOP list 0\r\n") != eventloop.Stay {
		t.Fatal("BLPOP is left to the goroutine")
	}
	if _, err := io.WriteString(far, strings.Repeat("PING\r\n", 100<<10/6)); err != nil {
		t.Fatal(err)
	}
	far.Close()
	waited := make(chan struct{})
	go func() { // ends with the answer
		defer close(waited)
		sess.x.await(sess.pipe.Barrier())
	}()
	testwait.For(t, "the connection to Redis ends", waited)
	if !sess.in.hungUp || sess.in.readErr != nil {
		t.Errorf("it has read to the end: %v, %v", sess.in.hungUp, sess.in.readErr)
	}
}
