package proxy

import (
	"context"
	"io"
	"net"
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
// a connection to Redis for the next request. If a busy machine lets more than a moment pass
// between the token and the reset, the test tries again.
func TestResetWhileARequestWaitsForAConnection(t *testing.T) {
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
	s := New(Config{Upstream: redis, MaxClients: 100, UpstreamConns: 4,
		Locks: lockcmd.Config{MaxTimeout: time.Hour, FenceRetention: time.Hour}})
	s.pool.Spares = 0
	addr := serve(t, s)
	next := talk(t, addr, "the next")
	next.say("LOCK job 600\r\nUNLOCK job\r\nGET k")
	for _, want := range []string{":", ":1", "$-1"} {
		next.hear(want)
	}
	for range 50 {
		dials, goOn = make(chan struct{}), make(chan struct{})
		dying := talk(t, addr, "the dying client")
		holds.Store(true)
		dying.say("LOCK job 600\r\nBLPOP list 0")
		dying.hear(":")
		testwait.For(t, "a connection is opened", dials)
		sess := sessionOf(t, s, dying)
		dying.Conn.(*net.TCPConn).SetLinger(0)
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
