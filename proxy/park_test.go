package proxy

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"lockproxy/internal/eventloop"
	"lockproxy/internal/loopguard"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/upstream"
	"lockproxy/lockcmd"
	"lockproxy/passthrough"
)

func server(t *testing.T, url string) *Server {
	t.Helper()
	return serverWith(t, url, lockcmd.Config{MaxTimeout: time.Hour})
}

func serverWith(t *testing.T, url string, locks lockcmd.Config) *Server {
	t.Helper()
	redis, err := upstream.Parse(url)
	if err != nil {
		t.Fatal(err)
	}
	s := New(Config{Upstream: redis, Locks: locks})
	s.pool.Spares = 0 // a script plays the one connection that a client opens
	t.Cleanup(s.Close)
	return s
}

// unread returns a session that only the test reads, and its client. Redis has let it in.
func unread(t *testing.T, s *Server) (*session, *net.TCPConn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	far, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	near, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	far.SetDeadline(testwait.Deadline())
	sess, _ := s.add(func() *session { return newSession(s, near) })
	t.Cleanup(func() {
		far.Close()
		if sess.x.ctx.Err() == nil {
			sess.Resume()
		}
	})
	sess.client.setPhase(serving)
	sess.in.buf, sess.in.socketEmpty = make([]byte, minSessionBuf), true
	if err := sess.x.route(passthrough.Home, nil); err != nil {
		t.Fatal(err)
	}
	arrives(sess, far, "PING\r\n")
	expect(t, far, "+PONG\r\n")
	return sess, far.(*net.TCPConn)
}

// arrives has the client send text, and calls Ready for that.
func arrives(sess *session, far net.Conn, text string) eventloop.Next {
	io.WriteString(far, text)
	testwait.Holds(func() bool {
		n, _ := sess.client.peek()
		return n > 0
	})
	return ready(sess, true)
}

// ready calls Ready as a loop does.
func ready(sess *session, arrived bool) eventloop.Next {
	loopguard.On()
	defer loopguard.Enter(new(loopguard.Goroutine))()
	it := &eventloop.Iteration{}
	defer it.Flush()
	return sess.Ready(it, arrived)
}

// expect is what the client gets next.
func expect(t *testing.T, far net.Conn, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(far, got); string(got) != want {
		t.Fatalf("got %q, %v; want %q", got, err, want)
	}
}

// A request that arrives together with an answer is read at once, since the loop does not report the
// arrival again. It is handled when the command has its reply.
func TestArrivalWithAnswer(t *testing.T) {
	sess, far := unread(t, server(t, testredis.Start(t).URL()))
	next := arrives(sess, far, "ONCE a 600 WAIT 600\r\n")
	if next != eventloop.Stay || len(sess.locks.begun) != 1 {
		t.Fatal("ONCE is left to the goroutine")
	}
	<-sess.locks.begun[0].answer.Done // that there is no value: then it asks for the claim
	if arrives(sess, far, "ECHO x\r\n") != eventloop.Stay {
		t.Fatal("the answer is left to the goroutine")
	}
	for len(sess.locks.begun) > 0 {
		<-sess.locks.begun[0].answer.Done
		ready(sess, false)
	}
	token := make([]byte, len(":1790000000000001\r\n"))
	if _, err := io.ReadFull(far, token); err != nil || token[0] != ':' {
		t.Fatalf("%q, %v", token, err)
	}
	expect(t, far, "$1\r\nx\r\n")
}

// A client that closes its side gets all replies, even if Ready finds that together with the answer
// to a lock command.
func TestEndWithAnswer(t *testing.T) {
	s := server(t, testredis.Start(t).URL())
	first, far := unread(t, s)
	arrives(first, far, "UNLOCK a\r\n")
	for first.requests.handle(); len(first.locks.begun) > 0; first.requests.handle() {
		first.locks.await() // now Redis knows the script
	}
	expect(t, far, ":0\r\n")

	sess, far := unread(t, s)
	next := arrives(sess, far, "UNLOCK a\r\nECHO x\r\n")
	if next != eventloop.Stay || len(sess.locks.begun) != 1 {
		t.Fatal("UNLOCK is left to the goroutine")
	}
	<-sess.locks.begun[0].answer.Done
	far.CloseWrite()
	testwait.Until(t, "the end has come", func() bool {
		_, err := sess.client.peek()
		return err == nil
	})
	if ready(sess, true) != eventloop.Leave {
		t.Fatal("the end is not left to the goroutine")
	}
	sess.Resume()
	expect(t, far, ":0\r\n$1\r\nx\r\n")
}

// The kernel tells a reset once. The session remembers the reset when a later read finds an
// ordinary end.
func TestResetIsToldOnce(t *testing.T) {
	sess, far := unread(t, server(t, testredis.Start(t).URL()))
	far.SetLinger(0)
	far.Close()
	testwait.Until(t, "the reset has come", sess.x.in.gone)
	told := time.Now()
	sess.in.read()
	if !errors.Is(sess.in.readErr, syscall.ECONNRESET) || sess.in.readEnded.After(told) {
		t.Errorf("the end is %v at %v; want the reset", sess.in.readErr, sess.in.readEnded)
	}
}

// A token that waits for the rest of a push has not been sent.
func TestTokenBehindPush(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	conns := make(chan net.Conn, 1)
	go func() { // ends with its first connection, or ln
		if conn, err := ln.Accept(); err == nil {
			conn.Read(make([]byte, 100))
			io.WriteString(conn, "+PONG\r\n")
			conns <- conn
		}
	}()
	sess, far := unread(t, server(t, "redis://"+ln.Addr().String()))
	redis := <-conns
	defer redis.Close()
	if arrives(sess, far, "LOCK a 600\r\n") != eventloop.Stay ||
		arrives(sess, far, "LOCK b 600\r\n") != eventloop.Stay || len(sess.locks.begun) != 2 {
		t.Fatal("LOCK is left to the goroutine")
	}
	const first, second = ":1790000000000001\r\n", ":1790000000000002\r\n"
	const push = ">2\r\n+invalidate\r\n*1\r\n+k\r\n"
	io.WriteString(redis, first+push[:8])
	expect(t, far, push[:8])
	ready(sess, false)
	if _, ok := sess.client.holder.LastUndelivered(); ok || len(sess.locks.begun) != 1 {
		t.Error("the token counts as sent")
	}
	io.WriteString(redis, push[8:]+second)
	<-sess.locks.begun[0].answer.Done
	ready(sess, false)
	expect(t, far, push[8:]+first+second)
	if sent, ok := sess.client.holder.LastUndelivered(); !ok ||
		sent.End != sess.pipe.Status().Given {
		t.Errorf("%v, %+v", ok, sent)
	}
}
