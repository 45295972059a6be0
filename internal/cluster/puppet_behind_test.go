package cluster

import "testing"

const downReply = "-CLUSTERDOWN The cluster is down"

// A request that a node refuses while the cluster is down does not run behind a later one, which
// the node runs once the cluster is up.
func TestClusterDownWithOthersBehind(t *testing.T) {
	p := newPuppets(t, "a:1")
	p.send("SET 06S first", "SET 06S second", "GET 06S")
	a := p.at("a:1")
	a.hears("SET 06S first", "SET 06S second", "GET 06S")
	a.says(downReply, "+OK", downReply)
	a.hears("GET 06S") // nothing is behind it
	a.says("+second")
	p.replies(downReply, "+OK", "+second")
}

// The later request can be a transaction, also while the earlier one waits to be sent again.
func TestClusterDownWithATransactionBehind(t *testing.T) {
	p := newPuppets(t, "a:1")
	p.send("WATCH 06S")
	a := p.at("a:1")
	a.hears("WATCH 06S")
	a.says("+OK")
	p.replies("+OK")
	p.send("SET 06S first", "MULTI", "SET 06S second", "EXEC")
	a.hears("SET 06S first", "MULTI", "SET 06S second", "EXEC")
	a.says(downReply, "+OK", "+QUEUED", "*1", "+OK")
	p.replies(downReply, "+OK", "+QUEUED", "*1", "+OK")
	p.send("GET 06S")
	a.hears("GET 06S")
	a.says("+second")
	p.replies("+second")
}

// A script that makes up a MOVED is not run again behind a later request, which its node has run.
// The address can be a master's or not.
func TestScriptThatSaysMovedWithOthersBehind(t *testing.T) {
	for _, reply := range []string{"-MOVED 0 evil:1", "-MOVED 0 b:1"} {
		p := newPuppets(t, "a:1", "b:1", "evil:1")
		p.cl.slots.Store(allAt("a:1").with(1, "b:1"))
		p.send("EVAL script 1 06S", "INCR 06S")
		a := p.at("a:1")
		a.hears("EVAL script 1 06S", "INCR 06S")
		a.says(reply)
		if reply == "-MOVED 0 evil:1" {
			a.hears("CLUSTER NODES")
		}
		if a.says(":1"); reply == "-MOVED 0 evil:1" {
			a.says(nodesReply("id a:1@2 myself,master - 0 0 1 connected")...)
		}
		p.replies(reply, ":1")
		p.cl.slots.Store(allAt("a:1"))
		p.send("GET 06S")
		a.hears("GET 06S")
		a.says("+1")
		p.replies("+1")
		if len(p.calls["b:1"]) > 0 {
			t.Error("another node is asked")
		}
	}
}

// A hold ends after its delay if the requests that waited were answered meanwhile.
func TestHoldThatWasEmptied(t *testing.T) {
	p := newPuppets(t, "a:1")
	p.conn.mu.Lock()
	h := &slotHold{late: true}
	p.conn.order.holds[0] = h
	p.conn.order.probe(0, h)
	p.conn.mu.Unlock()
	p.send("GET 06S")
	p.at("a:1").hears("GET 06S")
}

// CLUSTER COUNTKEYSINSLOT runs at any node: its answer does not show that the script before it has
// made up its MOVED.
func TestScriptThatIsMovedBeforeAKeylessRequest(t *testing.T) {
	p := newPuppets(t, "a:1", "b:1")
	p.cl.slots.Store(allAt("a:1").with(1, "b:1"))
	p.send("EVAL script 1 06S", "CLUSTER COUNTKEYSINSLOT 0")
	a := p.at("a:1")
	a.hears("EVAL script 1 06S", "CLUSTER COUNTKEYSINSLOT 0")
	a.says("-MOVED 0 b:1", ":0")
	b := p.at("b:1")
	b.hears("EVAL script 1 06S")
	b.says("+1")
	p.replies("+1", ":0")
}
