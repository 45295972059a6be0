package cluster

import (
	"strconv"
	"testing"
)

// A transaction has moved to the node of its first key when the node that was sent its MULTI is
// lost: neither is within a transaction afterwards.
func TestMultiThatIsLost(t *testing.T) {
	p := newPuppets(t, "a:1", "b:1")
	a := p.opens("a:1")
	p.cl.slots.Store(allAt("a:1").with(Slot([]byte("k")), "b:1"))
	p.send("MULTI", "SET k 1")
	a.hears("MULTI", "GET", "EXEC")
	b := p.at("b:1")
	b.hears("MULTI", "SET k 1")
	a.nc.Close()
	p.replies("-UPSTREAM a:1: sent true")
	b.says("+OK", "+QUEUED")
	b.hears("GET", "EXEC")
	b.says("-ERR wrong number of arguments", "-EXECABORT")
	p.replies("+QUEUED")
	p.send("GET k")
	b.hears("GET k")
	b.says("$-1")
	p.replies("$-1")
}

// If a node is lost before anything of a transaction was sent, that begins at no other.
func TestMultiThatIsNotSent(t *testing.T) {
	p := newPuppets(t, "a:1", "b:1")
	a := p.opens("a:1")
	p.send("TIME") // which it doesn't read, so that nothing more can be sent
	p.awaitSent("a:1", 1)
	p.send("MULTI", "SET k 1", "EXEC")
	p.refreshed("b:1", true)
	a.nc.Close()
	p.replies("-UPSTREAM a:1: sent true", "-UPSTREAM a:1: sent false", "-UPSTREAM a:1: sent false",
		"-UPSTREAM a:1: sent false")
	p.send("TIME")
	b := p.at("b:1")
	b.hears("TIME")
	b.says("*0")
	p.replies("*0")
}

// Behind a MULTI that is refused, as an ACL can say, nothing runs twice.
func TestMultiThatIsRefused(t *testing.T) {
	p := newPuppets(t, "a:1", "b:1")
	a := p.opens("a:1")
	p.cl.slots.Store(allAt("a:1").with(Slot([]byte("k")), "b:1"))
	p.send("MULTI", "PUBLISH channel text", "INCR k", "EXEC")
	a.hears("MULTI", "PUBLISH channel text")
	a.says("-NOPERM multi", ":0")
	b := p.at("b:1")
	b.hears("INCR k")
	b.says(":1")
	a.hears("EXEC")
	a.says("-ERR EXEC without MULTI")
	p.replies("-NOPERM multi", ":0", ":1", "-ERR EXEC without MULTI")
	p.send("MULTI", "INCR k")
	b.hears("MULTI", "INCR k")
	p.cl.slots.Store(allAt("a:1"))
	p.send("EXEC")
	a.hears("MULTI", "GET", "EXEC")
	a.says("-NOPERM multi", "-ERR wrong number of arguments", "-ERR EXEC without MULTI")
	b.says("-NOPERM multi", ":2")
	a.hears("EXEC")
}

// awaitSent waits until so many requests without an answer may have reached a node.
func (p *puppets) awaitSent(addr string, requests int) {
	p.t.Helper()
	p.await(func() bool { return p.conn.nodes.byAddr[addr].sentCount >= requests })
}

// A request that is sent again to the node of an open transaction does not get into that, which
// begins again. What was watched is not any more, so a guarded transaction does nothing.
func TestRetryDuringATransaction(t *testing.T) {
	for _, guarded := range []bool{false, true} {
		p := newPuppets(t, "b:1", "a:1")
		b := p.opens("b:1")
		other := Slot([]byte("other"))
		p.cl.slots.Store(allAt("b:1").with(other, "a:1"))
		if guarded {
			p.send("WATCH k")
			b.hears("WATCH k")
			b.says("+OK")
			p.replies("+OK")
		}
		p.send("GET other", "MULTI", "SET k 1")
		a := p.at("a:1")
		a.hears("GET other")
		b.hears("MULTI", "SET k 1")
		a.says("-MOVED " + strconv.Itoa(other) + " b:1")
		b.hears("GET", "EXEC", "GET other")
		b.says("+OK", "+QUEUED", "-ERR wrong number of arguments", "-EXECABORT", "+1")
		p.replies("+1", "+OK", "+QUEUED")
		p.send("EXEC")
		b.hears("MULTI", "SET k 1")
		if guarded {
			b.hears("DISCARD", "EXEC")
			b.says("+OK", "+QUEUED", "+OK", "-ERR EXEC without MULTI")
			p.replies("*-1")
		} else {
			b.hears("EXEC")
			b.says("+OK", "+QUEUED", "*1", "+OK")
			p.replies("*1", "+OK")
		}
	}
}

// Redis 7.0 puts a message that a transaction publishes to its own client into EXEC's array, which
// does not count it. Nothing of that reply is taken for the reply to another request.
func TestMessageWithinExec(t *testing.T) {
	p := newPuppets(t, "a:1")
	p.send("HELLO 3")
	a := p.at("a:1")
	a.hears("HELLO 3")
	a.says("+OK")
	p.replies("+OK")
	p.send("MULTI", "PUBLISH c text", "PING", "EXEC", "GET k")
	a.hears("MULTI", "PUBLISH c text", "PING", "EXEC", "GET k")
	reply := []string{"*2", ">3", "$7", "message", "$1", "c", "$4", "text", ":1"}
	a.says(append(append([]string{"+OK", "+QUEUED", "+QUEUED"}, reply...), "+PONG", "+value")...)
	p.replies("+OK", "+QUEUED", "+QUEUED", "-UPSTREAM a:1: sent true", "-UPSTREAM a:1: sent true")
	p.send("GET k")
	a = p.at("a:1") // by another connection
	a.hears("GET k")
	a.says("+value")
	p.replies("+value")
}

// Redis up to 7.0 puts the invalidation of a key that an MGET finds expired into its reply, if
// somebody redirects those to its connection. Only that node's connection is lost, and only what it
// owed.
func TestPushWithinAReply(t *testing.T) {
	p := newPuppets(t, "a:1", "b:1")
	p.cl.slots.Store(allAt("a:1").with(Slot([]byte("k")), "b:1"))
	p.send("GET other", "MGET k {k}1", "GET other", "GET k")
	a, b := p.at("a:1"), p.at("b:1")
	a.hears("GET other", "GET other")
	b.hears("MGET k {k}1", "GET k")
	b.says("*2", "+1", ">2", "$10", "invalidate", "*1", "$4", "{k}1", "+2", "+3")
	a.says("+first", "+second")
	p.replies("+first", "-UPSTREAM b:1: sent true", "+second", "-UPSTREAM b:1: sent true")
	p.send("GET k")
	b = p.at("b:1")
	b.hears("GET k")
	b.says("+4")
	p.replies("+4")
}

// ASKING comes right before the MULTI that it is for, which a node remembers until EXEC. CLIENT
// CACHING, which would have to come there too, is left out.
func TestAskingAndCaching(t *testing.T) {
	p := newPuppets(t, "a:1", "b:1")
	p.send("CLIENT CACHING YES")
	a := p.at("a:1")
	a.hears("CLIENT CACHING YES")
	a.says("+OK")
	p.replies("+OK")
	p.send("MULTI", "INCR k", "EXEC", "GET k")
	a.hears("CLIENT CACHING YES", "MULTI", "INCR k", "EXEC", "GET k")
	ask := "-ASK " + slotK + " b:1"
	a.says("+OK", "+OK", ask, "-EXECABORT", ask)
	b := p.at("b:1")
	b.hears("ASKING", "MULTI", "INCR k", "EXEC")
	b.hears("ASKING", "GET k")
	b.says("+OK", "+OK", "+QUEUED", "*1", ":1", "+OK", "+1")
	p.replies("+OK", "+QUEUED", "*1", ":1", "+1")

	p.send("WATCH k")
	a.hears("WATCH k")
	a.says(ask)
	b.hears("ASKING", "WATCH k")
	b.says("+OK", "+OK")
	p.replies("+OK")
	p.send("CLIENT CACHING YES", "MULTI", "INCR k", "EXEC")
	a.hears("CLIENT CACHING YES")
	a.says("+OK")
	b.hears("ASKING", "MULTI", "INCR k", "EXEC")
	b.says("+OK", "+OK", "+QUEUED", "*1", ":2")
	p.replies("+OK", "+OK", "+QUEUED", "*1", ":2")
}

// Behind a MULTI that is refused, a script runs at once: it leads nobody to a replica.
func TestScriptBehindAMultiThatIsRefused(t *testing.T) {
	p := newPuppets(t, "a:1", "r:1")
	promoted := p.replicaAt("r:1")
	before := p.cl.slots.Load()
	p.send("MULTI", "EVAL script 0", "EXEC")
	a := p.at("a:1")
	a.hears("MULTI", "EVAL script 0", "EXEC")
	a.says("-NOPERM multi", "-MOVED 0 r:1", "-ERR EXEC without MULTI")
	p.replies("-NOPERM multi", "-MOVED 0 r:1", "-ERR EXEC without MULTI")
	if len(promoted) > 0 || p.cl.slots.Load() != before {
		t.Error("a script has had a replica taken for a master")
	}
}
