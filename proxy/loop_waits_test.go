package proxy

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/eventloop"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
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
	if arrives(sess, far, "LOCK a 300\r\n") != eventloop.Stay || len(sess.locks.begun) != 1 {
		t.Fatal("LOCK is left to the goroutine")
	}
	s.locks.FailedOver()
	io.WriteString(redis, ":1790000000000001\r\n")
	<-sess.locks.begun[0].answer.Done
	next := make(chan eventloop.Next)
	go func() { next <- ready(sess, false) }() // ends once it is received
	if got := testwait.For(t, "the loop goes on while Redis is silent", next); got !=
		eventloop.Stay || len(sess.locks.begun) != 1 || sess.locks.begun[0].answer == nil {
		t.Fatal("the second script is left to the goroutine")
	}
	io.WriteString(redis, "*3\r\n:1\r\n:0\r\n:0\r\n")
	<-sess.locks.begun[0].answer.Done
	ready(sess, false)
	expect(t, far, "-UPSTREAM was replaced by another server")
	if len(sess.locks.begun) != 0 {
		t.Error("the LOCK is not finished")
	}
}

// An event loop runs all steps of a lock command without WAIT, and leaves nothing to a goroutine:
// also if Redis has to be sent the scripts first, and with --min-replicas.
func TestLoopRunsAllSteps(t *testing.T) {
	const given = ":T\r\n"
	for name, of := range map[string]struct {
		flush, confirmed bool
	}{"plain": {}, "no scripts": {flush: true}, "replicas": {confirmed: true},
		"replicas, no scripts": {true, true}} {
		t.Run(name, func(t *testing.T) {
			redis := testredis.Start(t)
			cfg := lockcmd.Config{MaxTimeout: time.Hour, FenceRetention: time.Hour, CanFence: fenceable}
			if of.confirmed {
				cfg.Durability = lockcmd.Durability{MinReplicas: 1, ReplicaTimeout: time.Millisecond}
			}
			sess, far := unread(t, serverWith(t, redis.URL(), cfg))
			ask := func(text string) string {
				t.Helper()
				if of.flush {
					redis.Ask("SCRIPT", "FLUSH")
				}
				if next := arrives(sess, far, text+"\r\n"); next != eventloop.Stay {
					t.Fatalf("%s is left to the goroutine", text)
				}
				steps := 0
				for ; len(sess.locks.begun) > 0; steps++ {
					<-sess.locks.begun[0].answer.Done
					if next := ready(sess, false); next != eventloop.Stay {
						t.Fatalf("step %d of %s is left to the goroutine", steps, text)
					}
				}
				reply := make([]byte, 4<<10)
				n, err := far.Read(reply)
				if err != nil {
					t.Fatal(err)
				}
				return string(reply[:n])
			}
			token := ""
			for _, c := range []struct{ ask, want string }{
				{"LOCKALL 600 2 a b", given}, {"LOCKALL 600 2 a c", "$-1\r\n"},
				{"FENCE a T SET k 7", "+OK\r\n"}, {"FENCE a T GET k", "$1\r\n7\r\n"},
				{"FENCE c T GET k", "-FENCED token T"}, {"UNLOCKALL T 2 a b", ":2\r\n"},
				{"UNLOCKALL T 1 a", ":0\r\n"}, {"LOCK s 600 SHARED", given},
				{"FENCE s T INCR k", ":8\r\n"}, {"FENCE s T HGET k f", "-WRONGTYPE"},
				{"RELOCK s T 600", ":1\r\n"}, {"UNLOCK s", ":1\r\n"}, {"LOCK s x", "-ERR timeout"},
				{"LOCKINFO s", "$-1\r\n"}, {"FENCE s x GET k", "-ERR value is not an integer"},
				{"ONCE v 600", given}, {"ONCE v 600 EARLY 60", "$-1\r\n"},
				{"DONE v T made EX 90", ":1\r\n"}, {"ONCE v 600", "$4\r\nmade\r\n"},
				{"ONCE v 600 EARLY 60", "$4\r\nmade\r\n"},
				{"ONCE v 600 EARLY 60 WAIT 0", "$4\r\nmade\r\n"}, {"ONCE v 600 EARLY 99", given},
				{"ONCE v 600 EARLY 99 WAIT 0", "$4\r\nmade\r\n"}, {"DONE v T", ":1\r\n"},
			} {
				if of.confirmed && strings.Contains(c.ask, "WAIT") {
					continue // it waits: there is no value
				}
				reply := ask(strings.Replace(c.ask, " T", " "+token, 1))
				switch {
				case of.confirmed && (c.want == given || strings.HasPrefix(c.ask, "RELOCK")):
					if !strings.HasPrefix(reply, "-NOREPLICAS") && c.want == given {
						t.Errorf("%s: %q", c.ask, reply)
					}
					token = "1790000000000001" // none that was given
				case of.confirmed:
				case c.want == given:
					if token = strings.Trim(reply, ":\r\n"); len(token) != 16 {
						t.Fatalf("%s: %q", c.ask, reply)
					}
				case !strings.HasPrefix(reply, strings.Replace(c.want, "token T", "token "+token, 1)):
					t.Errorf("%s: %q, want %q", c.ask, reply, c.want)
				}
			}
		})
	}
}

// Lock commands of one pipeline go together, also after Redis has been found not to have their
// scripts: then they are asked for right behind the load, and take no round trip more each.
func TestLoopLoadsForAPipeline(t *testing.T) {
	sess, far := unread(t, serverWith(t, testredis.Start(t).URL(), lockcmd.Config{
		MaxTimeout: time.Hour, FenceRetention: time.Hour}))
	if arrives(sess, far, "LOCK a 600\r\nLOCK b 600\r\nLOCKINFO c\r\nUNLOCK d\r\nRELOCK e 1 600\r\n") !=
		eventloop.Stay || len(sess.locks.begun) != 5 {
		t.Fatal("the pipeline is left to the goroutine")
	}
	rounds := 0
	for ; len(sess.locks.begun) > 0; rounds++ {
		for _, one := range sess.locks.begun {
			<-one.answer.Done
		}
		if ready(sess, false) != eventloop.Stay {
			t.Fatalf("round %d is left to the goroutine", rounds)
		}
	}
	if rounds != 2 {
		t.Errorf("%d rounds", rounds)
	}
}

// When a wait has its reply nothing is woken for it: a timer would keep its session.
func TestNothingIsWokenAfterAWait(t *testing.T) {
	redis := testredis.Start(t)
	sess, far := unread(t, server(t, redis.URL()))
	arrives(sess, far, "LOCK a 300 WAIT 3600\r\n")
	for len(sess.locks.begun) > 0 {
		if answer := sess.locks.begun[0].answer; answer != nil {
			<-answer.Done
		}
		ready(sess, false)
	}
	expect(t, far, ":")
	if w := &sess.x.waker; w.timer == nil || w.timer.Stop() || !w.at.IsZero() {
		t.Errorf("it is woken at %v", w.at)
	}
}
