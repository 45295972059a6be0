package cluster

import (
	"strconv"
	"testing"
)

// A SSUBSCRIBE that has waited while its slot moved twice leaves no node taken for subscribed.
func TestSubscribeWhileASlotMovesTwice(t *testing.T) {
	p := newPuppets(t, "a:1", "b:1", "c:1")
	p.send("GET k")
	a := p.at("a:1")
	a.hears("GET k")
	p.refreshed("b:1", false)
	a.hears("PING")
	p.send("SSUBSCRIBE k")
	p.refreshed("c:1", true)
	p.send("GET k")
	a.says("$-1", "+PONG")
	c := p.at("c:1")
	c.hears("SSUBSCRIBE k")
	c.says("*3", "$10", "ssubscribe", "$1", "k", ":1")
	c.hears("GET k")
	c.says("-ERR Can't execute 'get'")
	p.replies("$-1", "*3", "$10", "ssubscribe", "$1", "k", ":1", "-ERR Can't execute 'get'")
	p.send("SUNSUBSCRIBE k")
	c.hears("SUNSUBSCRIBE k")
	c.says("*3", "$12", "sunsubscribe", "$1", "k", ":0")
	p.replies("*3", "$12", "sunsubscribe", "$1", "k", ":0")
	p.send("GET k")
	c.hears("GET k")
	c.says("$-1")
	p.replies("$-1")
}

// A MOVED that names another slot than that of the keys which the proxy sees, as a module's command
// can get, leaves nothing held.
func TestMovedThatNamesAnotherSlot(t *testing.T) {
	p := newPuppets(t, "a:1", "b:1")
	p.send("GET k", "GET other")
	a := p.at("a:1")
	a.hears("GET k", "GET other")
	p.refreshed("b:1", false)
	p.send("SET k 1", "SET other 1")
	a.hears("PING")
	a.says("-MOVED " + strconv.Itoa(Slot([]byte("other"))) + " b:1")
	b := p.at("b:1")
	b.hears("SET k 1")
	b.says("+OK")
	a.says("$-1", "+PONG")
	b.hears("GET k", "SET other 1")
	b.says("$-1", "+OK")
	p.replies("$-1", "$-1", "+OK", "+OK")
}

// CLIENT CACHING is not for an earlier request that is sent again before the next one comes.
func TestRetryBehindCaching(t *testing.T) {
	p := newPuppets(t, "a:1", "b:1", "c:1")
	a := p.opens("a:1")
	p.cl.slots.Store(allAt("a:1").with(Slot([]byte("k")), "c:1"))
	p.send("GET other", "CLIENT CACHING YES")
	a.hears("GET other", "CLIENT CACHING YES")
	a.says("-MOVED "+strconv.Itoa(Slot([]byte("other")))+" b:1", "+OK")
	b := p.at("b:1")
	b.hears("GET other")
	b.says("$-1")
	p.replies("$-1", "+OK")
	p.send("GET k")
	c := p.at("c:1")
	c.hears("CLIENT CACHING YES", "GET k")
}

// CLIENT CACHING is for each node that the next request goes to, also after a MOVED.
func TestCachingAtEachNode(t *testing.T) {
	p := newPuppets(t, "a:1", "b:1", "c:1")
	p.send("CLIENT CACHING YES")
	p.cl.slots.Store(allAt("a:1").with(Slot([]byte("k")), "b:1"))
	p.send("MGET k other")
	b := p.at("b:1")
	b.hears("CLIENT CACHING YES", "MGET k")
	b.says("+OK", "-MOVED "+slotK+" c:1")
	c := p.at("c:1")
	c.hears("CLIENT CACHING YES", "MGET k")
	c.says("+OK", "*1", "$1", "1")
	a := p.at("a:1")
	a.hears("CLIENT CACHING YES", "CLIENT CACHING YES", "MGET other")
	a.says("+OK", "+OK", "*1", "$1", "2")
	p.replies("+OK", "*2", "$1", "1", "$1", "2")
}

// A WAIT that a node has ended because it is a replica now is not asked of another node, which has
// not written.
func TestWaitAtANodeThatIsReplaced(t *testing.T) {
	p := newPuppets(t, "a", "b")
	two := mapOf(2, func(slot int) int {
		if slot == Slot([]byte("k")) {
			return 0
		}
		return 1
	})
	copy(two.masters, []string{"b", "a"}) // b has slot 0
	p.cl.slots.Store(two)
	p.send("SET other 1")
	b := p.at("b")
	b.hears("SET other 1")
	b.says("+OK")
	p.replies("+OK")
	p.send("SET k 1")
	a := p.at("a")
	a.hears("SET k 1")
	a.says("+OK")
	p.replies("+OK")

	const unblocked = "-UNBLOCKED force unblock from blocking operation, instance state changed"
	p.send("LOCKPROXY.WAIT k 1 100")
	a.hears("WAIT 1 100")
	a.says(unblocked)
	p.replies(unblocked)
	p.send("WAIT 1 100")
	a.hears("WAIT 1 100")
	b.hears("WAIT 1 100")
	b.says(":1")
	a.says(unblocked)
	p.replies(unblocked)
}

// WAIT behind the loss of a node does not count, on a new connection, replicas that may lack what
// was written. Once the client knows, it is about what is written next.
func TestWaitBehindALoss(t *testing.T) {
	p := newPuppets(t, "a:1", "b:1")
	p.send("SET k 1")
	a := p.at("a:1")
	a.hears("SET k 1")
	a.says("+OK")
	p.replies("+OK")
	p.refreshed("b:1", true)
	a.nc.Close()
	p.awaitLost("a:1")
	p.send("WAIT 0 0", "WAIT 1 100")
	p.replies("-UPSTREAM a:1,b:1: sent true", "-UPSTREAM a:1,b:1: sent true")
	p.send("SET k 2", "WAIT 1 100")
	b := p.at("b:1")
	b.hears("SET k 2")
	b.says("+OK")
	b.hears("WAIT 1 100")
	b.says(":1")
	p.replies("+OK", ":1")
}

// What one client has lost with a node is nothing that WAIT tells the next: that gets another Conn.
func TestFreshBehindALoss(t *testing.T) {
	p := newPuppets(t, "a:1", "b:1")
	p.opens("a:1").nc.Close()
	p.refreshed("b:1", true)
	p.awaitLost("a:1")
	p.send("GET k")
	b := p.at("b:1")
	b.hears("GET k")
	b.says("$-1")
	p.replies("$-1")
	if p.conn.Fresh() {
		t.Error("another client can get the Conn")
	}
}

// What a node has sent since the last client asked it is not for the next one, be it a push, and
// whether it has been read or not.
func TestFreshBehindWhatNobodyAskedFor(t *testing.T) {
	for _, said := range []string{">1", "$3"} {
		p := newPuppets(t, "a:1")
		a := p.opens("a:1")
		if !p.conn.Fresh() {
			t.Fatal("no other client gets the Conn")
		}
		a.says(said)
		p.await(func() bool { return p.conn.nodes.byAddr["a:1"].in.scan.Began() })
		if p.conn.Fresh() {
			t.Errorf("behind %q another client can get the Conn", said)
		}
	}
	p := newPuppets(t, "a:1")
	a := p.opens("a:1")
	a.says(">1", "+push")
	p.await(func() bool { return p.conn.replies.head != nil })
	if p.conn.Fresh() {
		t.Error("behind a push that is not read another client can get the Conn")
	}
}

// awaitLost waits until a connection has ended.
func (p *puppets) awaitLost(addr string) {
	p.t.Helper()
	p.await(func() bool { return p.conn.nodes.byAddr[addr] == nil })
}

// A MOVED that says what the map does, as each request of a command that the proxy doesn't know can
// get, asks no node for the map.
func TestMovedThatIsKnown(t *testing.T) {
	p := newPuppets(t, "a:1", "b:1")
	a := p.opens("a:1")
	p.cl.slots.Store(allAt("a:1").with(Slot([]byte("k")), "b:1"))
	refreshing := func(set bool) (was bool) {
		p.cl.mu.Lock()
		defer p.cl.mu.Unlock()
		was, p.cl.refreshing = p.cl.refreshing, set
		return was
	}
	refreshing(false)
	p.send("MODULE.GET k")
	a.hears("MODULE.GET k")
	a.says(moveK)
	b := p.at("b:1")
	b.hears("MODULE.GET k")
	b.says("$-1")
	p.replies("$-1")
	if refreshing(true) {
		t.Error("a node is asked for the map")
	}
}
