package proxy

import (
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"lockproxy/internal/eventloop"
	"lockproxy/internal/testredis"
	"lockproxy/internal/upstream"
	"lockproxy/passthrough"
)

func server(t *testing.T) *Server {
	t.Helper()
	redis, err := upstream.Parse(testredis.Start(t).URL())
	if err != nil {
		t.Fatal(err)
	}
	s := New(Config{Upstream: redis})
	t.Cleanup(s.Close)
	return s
}

// unread returns a session that nobody but the test reads, and its client. Redis has let it in.
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
	far.SetDeadline(time.Now().Add(10 * time.Second))
	sess, _ := s.add(func() *session { return newSession(s, near) })
	t.Cleanup(func() {
		far.Close()
		if sess.ctx.Err() == nil {
			sess.Resume()
		}
	})
	sess.client.setPhase(serving)
	sess.buf, sess.socketEmpty = make([]byte, minSessionBuf), true
	if err := sess.route(passthrough.Home); err != nil {
		t.Fatal(err)
	}
	arrives(sess, far, "PING\r\n")
	expect(t, far, "+PONG\r\n")
	return sess, far.(*net.TCPConn)
}

// arrives has the client send text, and calls Ready for that.
func arrives(sess *session, far net.Conn, text string) eventloop.Next {
	io.WriteString(far, text)
	for n := 0; n == 0; n, _ = sess.client.peek() {
		time.Sleep(time.Millisecond)
	}
	return sess.Ready(&eventloop.Iteration{}, true)
}

// expect is what the client gets next.
func expect(t *testing.T, far net.Conn, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(far, got); string(got) != want {
		t.Fatalf("got %q, %v; want %q", got, err, want)
	}
}

// What arrives together with an answer that needs the goroutine is read, though: the goroutine
// handles what has been read, and nobody is told of the arrival again.
func TestArrivalWithAnswer(t *testing.T) {
	sess, far := unread(t, server(t))
	if arrives(sess, far, "UNLOCK a\r\n") != eventloop.Stay || len(sess.begun) != 1 {
		t.Fatal("UNLOCK is left to the goroutine")
	}
	<-sess.begun[0].answer.Done // that there is no such script
	if arrives(sess, far, "ECHO x\r\n") != eventloop.Leave {
		t.Fatal("the answer is not left to the goroutine")
	}
	if sess.end == 0 && sess.socketEmpty {
		t.Error("what has arrived is forgotten")
	}
}

// A client that ends what it sends gets all replies, also if Ready finds the end together with the
// answer to a lock command.
func TestEndWithAnswer(t *testing.T) {
	s := server(t)
	first, far := unread(t, s)
	arrives(first, far, "UNLOCK a\r\n")
	first.handle() // now Redis knows the script
	expect(t, far, ":0\r\n")

	sess, far := unread(t, s)
	if arrives(sess, far, "UNLOCK a\r\nECHO x\r\n") != eventloop.Stay || len(sess.begun) != 1 {
		t.Fatal("UNLOCK is left to the goroutine")
	}
	<-sess.begun[0].answer.Done
	far.CloseWrite()
	for err := error(syscall.EAGAIN); err != nil; _, err = sess.client.peek() {
		time.Sleep(time.Millisecond)
	}
	if sess.Ready(&eventloop.Iteration{}, true) != eventloop.Leave {
		t.Fatal("the end is not left to the goroutine")
	}
	sess.Resume()
	expect(t, far, ":0\r\n$1\r\nx\r\n")
}
