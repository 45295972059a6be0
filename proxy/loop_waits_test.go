package proxy

import (
	"io"
	"net"
	"testing"
	"time"

	"lockproxy/internal/eventloop"
	"lockproxy/internal/testwait"
	"lockproxy/lockcmd"
)

// Another server replaces the upstream while a LOCK is on its way. The lock that it has taken is
// released by a second script, which the loop does not wait for: only the loop could read its
// answer.
func TestLoopDoesNotWaitForUndo(t *testing.T) {
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
	s := serverWith(t, "redis://"+ln.Addr().String(), lockcmd.Config{MaxTimeout: time.Hour,
		Durability: lockcmd.Durability{FailoverHold: time.Hour}})
	s.cfg.Locks.FailoverHold = time.Hour
	sess, far := unread(t, s)
	redis := testwait.For(t, "a home", conns)
	defer redis.Close()
	if arrives(sess, far, "LOCK a 300\r\n") != eventloop.Stay || len(sess.begun) != 1 {
		t.Fatal("LOCK is left to the goroutine")
	}
	s.locks.FailedOver()
	io.WriteString(redis, ":1790000000000001\r\n")
	<-sess.begun[0].answer.Done
	ready := make(chan eventloop.Next)
	go func() { ready <- sess.Ready(&eventloop.Iteration{}, false) }() // ends once it is received
	if next := testwait.For(t, "the loop goes on while Redis is silent", ready); next !=
		eventloop.Stay || len(sess.begun) != 1 || sess.begun[0].answer == nil {
		t.Fatal("the second script is left to the goroutine")
	}
	io.WriteString(redis, "*3\r\n:1\r\n:0\r\n:0\r\n")
	<-sess.begun[0].answer.Done
	sess.Ready(&eventloop.Iteration{}, false)
	expect(t, far, "-UPSTREAM was replaced by another server")
	if len(sess.begun) != 0 {
		t.Error("the LOCK is not finished")
	}
}
