package proxy

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/eventloop"
	"lockproxy/internal/test/badlink"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/lockcmd"
)

// upstreamFault is something that happens between a proxy and its upstream.
type upstreamFault struct {
	name    string
	happens func(r *testredis.Server, link *badlink.Link, s *Server)
	ends    func(r *testredis.Server, link *badlink.Link)
	silent  bool // nothing is answered until it ends
	loses   bool // the client can be closed
}

func upstreamFaults() []upstreamFault {
	type redis = *testredis.Server
	type link = *badlink.Link
	nothing := func(redis, link) {}
	return []upstreamFault{
		{name: "none", happens: func(redis, link, *Server) {}, ends: nothing},
		{name: "silence", happens: func(_ redis, l link, _ *Server) {
			l.Set(badlink.State{HoldUp: true, HoldDn: true})
		}, ends: func(_ redis, l link) { l.Set(badlink.State{}) }, silent: true},
		{name: "no scripts", happens: func(r redis, _ link, _ *Server) { r.Ask("SCRIPT", "FLUSH") },
			ends: nothing},
		{name: "no rights", happens: func(r redis, _ link, _ *Server) {
			r.Ask("ACL", "SETUSER", "default", "-@scripting", "-exec")
		}, ends: func(r redis, _ link) { r.Ask("ACL", "SETUSER", "default", "+@all") }},
		{name: "connections lost", happens: func(_ redis, l link, _ *Server) { l.Reset() },
			ends: nothing, loses: true},
		{name: "failover", happens: func(_ redis, _ link, s *Server) { s.locks.FailedOver() },
			ends: nothing},
	}
}

// Something happens to the upstream while a lock command is on its way, at each of its steps. What
// runs in the loop waits for nothing (package loopguard would say so), another client is served
// though the command has no answer, and the client of the command is answered or, where its
// connection is lost, at least closed.
func TestFaultsAtEachStep(t *testing.T) {
	commands := []struct{ before, ask string }{
		{"", "LOCK a 600"}, {"LOCK a 600", "LOCK a 600"}, {"LOCK a 600", "UNLOCK a"},
		{"LOCK a 600", "RELOCK a T 600"}, {"LOCK a 600", "LOCKINFO a"}, {"", "LOCKALL 600 2 a b"},
		{"LOCKALL 600 2 a b", "UNLOCKALL T 2 a b"}, {"LOCK a 600", "FENCE a T SET k 1"},
		{"LOCK a 600 SHARED", "FENCE a T SET k 1"}, {"", "ONCE v 600"}, {"", "ONCE v 600 EARLY 99"},
		{"ONCE v 600", "DONE v T made"},
	}
	for _, replicas := range []int{0, 1} {
		redis := testredis.Start(t)
		link, err := badlink.New(redis.Addr(), 1)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(link.Close)
		config := lockcmd.Config{MaxTimeout: time.Hour, FenceRetention: time.Hour,
			CanFence: fenceable, Durability: lockcmd.Durability{MinReplicas: replicas,
				ReplicaTimeout: time.Millisecond, FailoverHold: time.Hour}}
		for _, fault := range upstreamFaults() {
			for _, c := range commands {
				if replicas > 0 && c.before != "" {
					continue // nothing is given out
				}
				for step, more := 0, true; more; step++ {
					redis.Ask("FLUSHALL")
					s := serverWith(t, "redis://"+link.Addr(), config)
					name := fmt.Sprintf("%d replicas, %s at step %d of %s after %q", replicas,
						fault.name, step, c.ask, c.before)
					more = faultAtStep(t, name, s, c.before, c.ask, step, fault, redis, link)
				}
			}
		}
	}
}

// faultAtStep reports whether the command has had a later step too.
func faultAtStep(t *testing.T, name string, s *Server, before, ask string, step int,
	fault upstreamFault, redis *testredis.Server, link *badlink.Link) (more bool) {
	t.Helper()
	sess, far := unread(t, s)
	other, otherFar := unread(t, s)
	if before != "" {
		arrives(sess, far, before+"\r\n")
		for len(sess.locks.begun) > 0 {
			testwait.For(t, name+": an answer before", sess.locks.begun[0].answer.Done)
			ready(sess, false)
		}
		ask = strings.Replace(ask, " T", " "+strings.Trim(heard(far), ":\r\n"), 1)
	}
	next := arrives(sess, far, ask+"\r\n")
	for at := 0; next == eventloop.Stay && len(sess.locks.begun) > 0; at++ {
		if at == step {
			fault.happens(redis, link, s)
			if !fault.loses {
				arrives(other, otherFar, "PING\r\n")
			}
			if fault.silent {
				fault.ends(redis, link)
			}
			if !fault.loses {
				expect(t, otherFar, "+PONG\r\n")
			}
		}
		testwait.For(t, name+": an answer", sess.locks.begun[0].answer.Done)
		next, more = ready(sess, false), at >= step
	}
	more = more && next == eventloop.Stay
	resumed := make(chan struct{})
	go func() { // ends once far is closed, which is waited for
		defer close(resumed)
		if next == eventloop.Leave {
			sess.Resume()
		}
	}()
	if heard(far) == "" && !fault.loses {
		t.Errorf("%s: no answer", name)
	}
	far.Close()
	testwait.For(t, name+": the end", resumed)
	fault.ends(redis, link)
	return more
}

// heard is what the client hears next, "" if that is the end.
func heard(far net.Conn) string {
	reply := make([]byte, 512)
	n, err := far.Read(reply)
	if err != nil && err != io.EOF {
		return ""
	}
	return string(reply[:n])
}
